"""What can go wrong in an export, in the user's terms."""


class ExportError(Exception):
    """The export cannot go on; the text says what was expected, what arrived, and the way out."""


class UnreachableHostError(ExportError):
    """The host of the pretrained weights did not answer."""
