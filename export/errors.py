"""What can go wrong in an export, in the user's terms."""


class ExportError(Exception):
    """The export cannot go on; the text says what was expected, what arrived, and the way out."""


def first_line(error: Exception) -> str:
    """What other programs' errors say in their first line, for a message of one sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class UnreachableHostError(ExportError):
    """The host of the pretrained weights did not answer."""
