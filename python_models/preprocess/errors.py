"""What can be wrong with an image."""

from typing import Literal, get_args

Code = Literal["empty", "not_an_image", "truncated", "corrupt", "too_many_bytes", "too_many_pixels", "unsupported"]
CODES: tuple[Code, ...] = get_args(Code)


class InvalidImageError(ValueError):
    """The file is at fault, not the service.

    `code` is the contract, `detail` says what was expected and what arrived.
    """

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail
