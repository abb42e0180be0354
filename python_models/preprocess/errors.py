"""What can be wrong with an image."""


class InvalidImageError(ValueError):
    """The file is at fault, not the service. The text reads `code: what was expected and what arrived`."""
