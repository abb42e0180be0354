"""What is compared of one file, and the limits. Pure: no server, no file, no network."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST_LEVELS = 1  # of 255, at any pixel
FLOAT32_LEVELS = 0.001  # what float32 may add to that: a level is 1/255, a normalized value's rounding below 1e-6
MEAN_NORMALIZED = 0.0005  # of one image, not reached
TIE_SCORE = 0.001  # two classes closer than this may go either way


class Top1(StrEnum):
    """How the service's best class stands to torch's scores."""

    AGREES = "agrees"
    TIE = "tie"
    DIFFERS = "differs"


class Verdict(StrEnum):
    """What one file says about the service."""

    MET = "met"
    TIE = "tie"  # within the limits of the pixels; torch's two best classes are too close to compare
    NOT_MET = "not met"
    REFUSED = "refused"  # by the service, though Pillow reads it
    NOT_READ = "not read"  # by Pillow, though the service does
    NO_IMAGE = "no image"  # for neither
    NOT_COMPARED = "not compared"
    FAILED = "failed"  # the service itself: no answer, or none of pipeline where preprocess has one


@dataclass(frozen=True)
class ScoredClass:
    class_id: int
    score: float  # softmax probability


@dataclass(frozen=True)
class Refusal:
    """Why the service gave no class. Its error as text, because an exception keeps its whole call alive."""

    step: str  # "preprocess" or "postprocess"; empty where the service failed by itself
    code: str  # of the contract, or "service"
    text: str


@dataclass(frozen=True, kw_only=True)
class Served:
    """What the service makes of a file: pixels and class, or a refusal."""

    normalized: npt.NDArray[np.float32] | None = None  # (3, H, W)
    best: ScoredClass | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What Pillow makes of a file: pixels, or why there are none."""

    format: str  # Pillow's name
    size: str  # pixels, as the header has them
    normalized: npt.NDArray[np.float64] | None = None  # (3, H, W)
    error: str = ""  # why Pillow cannot read it
    not_compared: str = ""  # why it was not tried


@dataclass(frozen=True)
class PixelDifference:
    """Of one image, over all pixels and channels."""

    largest_levels: float  # of 255
    mean_normalized: float

    @property
    def is_within_limits(self) -> bool:
        return self.largest_levels <= LARGEST_LEVELS + FLOAT32_LEVELS and self.mean_normalized < MEAN_NORMALIZED


@dataclass(frozen=True, kw_only=True)
class FileResult:
    """One row of the report; small, for a folder may hold very many files."""

    path: str  # inside the folder
    format: str  # Pillow's name
    size: str  # pixels, as the header has them
    is_decoded: bool  # by the service
    refusal: Refusal | None
    reference_error: str
    not_compared: str
    difference: PixelDifference | None
    served: ScoredClass | None
    expected: ScoredClass | None  # torch's
    top_1: Top1 | None
    verdict: Verdict


def pixel_difference(
    served: npt.NDArray[np.floating[Any]], reference: npt.NDArray[np.floating[Any]], std: Sequence[float]
) -> PixelDifference:
    """Compare two normalized images, (3, H, W) each; `std`, on the [0, 1] scale, turns their units into levels of 255.

    Raises ValueError where the shapes differ. NaN is further away than any limit.
    """
    if served.shape != reference.shape:
        raise ValueError(f"served: expected shape {reference.shape} as the reference's, got {served.shape}")
    difference = np.nan_to_num(np.abs(served.astype(np.float64) - reference), nan=np.inf, posinf=np.inf)
    levels = difference * np.reshape(std, (3, 1, 1)) * 255
    return PixelDifference(float(levels.max()), float(difference.mean()))


def best_class(scores: npt.NDArray[np.floating[Any]]) -> ScoredClass:
    """The highest of the scores (classes,)."""
    class_id = int(scores.argmax())
    return ScoredClass(class_id, float(scores[class_id]))


def compare_top_1(class_id: int, scores: npt.NDArray[np.floating[Any]]) -> Top1:
    """Compare the service's best class with torch's scores (classes,).

    A tie is where the two best scores are closer than TIE_SCORE, and the service names a class as close to the best.
    """
    second, best = np.partition(scores, -2)[-2:]
    if not 0 <= class_id < len(scores) or not best - scores[class_id] < TIE_SCORE:
        return Top1.DIFFERS
    return Top1.TIE if best - second < TIE_SCORE else Top1.AGREES


def judge(
    path: str,
    served: Served,
    reference: Reference,
    scores: npt.NDArray[np.floating[Any]] | None,
    std: Sequence[float],
) -> FileResult:
    """Bring together what is known of one file; `scores` are torch's, (classes,), where there is a reference."""
    difference = (
        None
        if served.normalized is None or reference.normalized is None
        else pixel_difference(served.normalized, reference.normalized, std)
    )
    top_1 = None if served.best is None or scores is None else compare_top_1(served.best.class_id, scores)
    return FileResult(
        path=path,
        format=reference.format,
        size=reference.size,
        is_decoded=served.normalized is not None,
        refusal=served.refusal,
        reference_error=reference.error,
        not_compared=reference.not_compared,
        difference=difference,
        served=served.best,
        expected=None if scores is None else best_class(scores),
        top_1=top_1,
        verdict=_verdict(served, reference, difference, top_1),
    )


def _verdict(served: Served, reference: Reference, difference: PixelDifference | None, top_1: Top1 | None) -> Verdict:
    if served.refusal is not None and served.refusal.step != "preprocess":
        return Verdict.FAILED
    if reference.not_compared:
        return Verdict.NOT_COMPARED
    if served.refusal is not None:
        return Verdict.NO_IMAGE if reference.normalized is None else Verdict.REFUSED
    if difference is None:
        return Verdict.NOT_READ
    if top_1 is Top1.DIFFERS or not difference.is_within_limits:
        return Verdict.NOT_MET
    return Verdict.TIE if top_1 is Top1.TIE else Verdict.MET


@dataclass(frozen=True)
class Summary:
    """The results of some files, all or those of one format, together."""

    results: Sequence[FileResult]

    @property
    def differences(self) -> list[PixelDifference]:
        return [result.difference for result in self.results if result.difference is not None]

    @property
    def decoded(self) -> int:
        """Files of which the service made pixels."""
        return sum(result.is_decoded for result in self.results)

    @property
    def refused(self) -> Counter[str]:
        """Files that the service refused or failed at, by error code."""
        return Counter(result.refusal.code for result in self.results if result.refusal)

    @property
    def largest_levels(self) -> float:
        return max(difference.largest_levels for difference in self.differences)

    @property
    def worst_mean(self) -> float:
        return max(difference.mean_normalized for difference in self.differences)

    @property
    def mean(self) -> float:
        return float(np.mean([difference.mean_normalized for difference in self.differences]))

    def with_verdict(self, verdict: Verdict) -> list[FileResult]:
        return [result for result in self.results if result.verdict is verdict]

    def count_top_1(self, top_1: Top1) -> int:
        return sum(result.top_1 is top_1 for result in self.results)

    @property
    def comparable_top_1(self) -> int:
        """Files with a top-1 on both sides that is no tie."""
        return self.count_top_1(Top1.AGREES) + self.count_top_1(Top1.DIFFERS)

    @property
    def is_met(self) -> bool:
        """Whether something was compared, all of it is within the limits, and the service never failed."""
        return bool(self.differences) and all(
            result.verdict not in (Verdict.NOT_MET, Verdict.FAILED) for result in self.results
        )
