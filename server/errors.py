"""What can go wrong with a server, in the user's terms."""


class ServerError(Exception):
    """The server cannot start or go on; the text says what was expected, what arrived, and what to do."""
