"""What a classification returns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import AnswerError, ClassificationError, error_from_text

OUTPUTS = {
    "class_id": np.dtype(np.int32),
    "score": np.dtype(np.float32),
    "label": np.dtype("O"),
    "error": np.dtype("O"),
}


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


def read_results(outputs: Mapping[str, npt.NDArray[Any]], image_count: int | None = None) -> list[ImageResult]:
    """Turn the outputs of `pipeline`, (N, k) each and error (N, 1), into one result an image; N is `image_count`.

    Places where no class stands, class_id -1, are left out. Raises AnswerError where an output is missing or is of
    another type or shape.
    """
    missing = [name for name in OUTPUTS if name not in outputs]
    if missing:
        raise AnswerError(f"answer: expected the outputs {list(OUTPUTS)}, got none of {missing}")
    values = [outputs[name] for name in OUTPUTS]
    ranked, error = values[:3], values[3]
    wrong_type = any(value.dtype != dtype for value, dtype in zip(values, OUTPUTS.values(), strict=True))
    shape = ranked[0].shape
    wrong_shape = len(shape) != 2 or error.shape != (shape[0], 1) or any(value.shape != shape for value in ranked)
    if wrong_type or wrong_shape or image_count not in (None, shape[0]):
        got = {name: f"{value.dtype} {value.shape}" for name, value in zip(OUTPUTS, values, strict=True)}
        raise AnswerError(
            f"answer: expected int32, float32 and text (N, k), and text (N, 1), N {image_count or 'any'}, got {got}"
        )
    try:
        return [_read_row(*row) for row in zip(*values, strict=True)]
    except UnicodeDecodeError as error:
        raise AnswerError(f"answer: expected text in UTF-8, got {error.object!r}") from error


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


MAX_WAITING = 1024  # results behind one that is late


class InOrder:
    """Results that come in any order, handed on in the order of their images."""

    def __init__(self) -> None:
        self._waiting: dict[int, ImageResult] = {}
        self._next = 0

    def put(self, places: Sequence[int], results: Sequence[ImageResult]) -> None:
        """Take the results of the images at `places`."""
        self._waiting.update(zip(places, results, strict=True))

    @property
    def is_full(self) -> bool:
        """Whether no more should be asked for before the one that is late is there."""
        return len(self._waiting) >= MAX_WAITING

    def ready(self) -> Iterator[ImageResult]:
        """Those before which none is missing."""
        while self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1
