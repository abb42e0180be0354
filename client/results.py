"""What a classification returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import ClassificationError, ServiceError, error_from_text

OUTPUTS = ("class_id", "score", "label", "error")


class InferResult(Protocol):
    """What tritonclient returns, over gRPC as over HTTP."""

    def as_numpy(self, name: str) -> npt.NDArray[Any] | None: ...


@dataclass(frozen=True)
class ClassScore:
    """One class of an answer; `score` is its probability, from 0 to 1."""

    class_id: int
    score: float
    label: str


@dataclass(frozen=True)
class ImageResult:
    """The classes of one image, the highest score first, or why it has none."""

    classes: Sequence[ClassScore]
    error: ClassificationError | None = None


def read_results(answer: InferResult) -> list[ImageResult]:
    """Turn the outputs of `pipeline`, (N, k) each and error (N, 1), into one result an image.

    Places where no class stands, class_id -1, are left out. Raises ServiceError where an output is missing.
    """
    values = [answer.as_numpy(name) for name in OUTPUTS]
    if any(value is None for value in values):
        missing = [name for name, value in zip(OUTPUTS, values, strict=True) if value is None]
        raise ServiceError(f"answer: expected the outputs {list(OUTPUTS)}, got none of {missing}")
    return [_read_row(*row) for row in zip(*values, strict=True)]


def _read_row(
    class_id: npt.NDArray[np.int32],
    score: npt.NDArray[np.float32],
    label: npt.NDArray[np.object_],
    error: npt.NDArray[np.object_],
) -> ImageResult:
    classes = [
        ClassScore(int(one), float(value), name.decode())
        for one, value, name in zip(class_id, score, label, strict=True)
        if one != -1
    ]
    return ImageResult(classes, error_from_text(error[0].decode()) if error[0] else None)
