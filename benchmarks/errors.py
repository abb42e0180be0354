"""What can go wrong with a measurement, in the user's terms."""


class BenchmarkError(Exception):
    """The measurement cannot go on; the text says what was expected, what arrived, and what to do."""
