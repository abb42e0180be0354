"""What a caller may say with a request: `top_k` and `threshold`."""

import json
from dataclasses import dataclass


class InvalidParameterError(ValueError):
    """The caller's parameter is at fault. The text reads `code: what was expected and what arrived`."""


@dataclass(frozen=True, kw_only=True)
class RequestParameters:
    """How many classes an answer holds, and the score below which a class is left out."""

    top_k: int
    threshold: float

    @classmethod
    def from_json(cls, text: str, classes: int) -> "RequestParameters":
        """Read a request's parameters as Triton hands them over, one JSON object.

        `top_k` is an integer from 1 to `classes` (default 5, or all classes where there are fewer), `threshold` a
        number from 0 to 1 (default 0). Other parameters are not ours and left alone.
        Raises InvalidParameterError.
        """
        given = json.loads(text) if text else {}
        top_k, threshold = given.get("top_k", min(5, classes)), given.get("threshold", 0.0)
        if type(top_k) is not int or not 1 <= top_k <= classes:
            raise InvalidParameterError(
                f"invalid_parameter: top_k: expected an integer from 1 to {classes}, got {top_k!r}"
            )
        if type(threshold) not in (int, float) or not 0 <= threshold <= 1:
            raise InvalidParameterError(
                f"invalid_parameter: threshold: expected a number from 0 to 1, got {threshold!r}"
            )
        return cls(top_k=top_k, threshold=float(threshold))
