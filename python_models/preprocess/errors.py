"""What can be wrong with an image."""


class InvalidImageError(ValueError):
    """The file is at fault, not the service.

    `code` is the contract, `detail` says what was expected and what arrived.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail
