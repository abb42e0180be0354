"""What can go wrong with a classification. This is the only place that reads an error's text."""

import re

# `step: code: what was expected and what arrived`; Triton puts `in ensemble 'pipeline', ` in front for some requests.
_CONTRACT = re.compile(r"(?:in ensemble '[^']*', )?(?P<step>[a-z_]+): (?P<code>[a-z_]+): (?P<detail>.*)", re.DOTALL)


class ClassificationError(Exception):
    """The base of everything that the client raises."""


class ImageError(ClassificationError):
    """The pipeline refused the image or a parameter: asking again with the same would fail again.

    `step` and `code` are the contract (`preprocess`, `not_an_image`); `detail` says what was expected and what arrived.
    """

    def __init__(self, step: str, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.step, self.code, self.detail = step, code, detail


class ServiceError(ClassificationError):
    """The server could not be reached, did not answer in time, or failed by itself."""


def error_from_text(text: str) -> ClassificationError:
    """Read a row of the output `error`, or the message of a failed request.

    >>> error_from_text("preprocess: empty: image 0: expected an image file, got 0 bytes").code
    'empty'
    """
    match = _CONTRACT.fullmatch(text)
    if match is None or match["code"] == "internal":
        return ServiceError(text)
    return ImageError(match["step"], match["code"], match["detail"])
