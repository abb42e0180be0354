"""Answers of `pipeline` beside those of `pipeline_canary`, the next version of the network: the same, and as fast?"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .deadline import Deadline
from .pipeline import PipelineClient
from .protocol import Request
from .results import ImageResult

CANARY = "pipeline_canary"


class CanaryClient(PipelineClient):
    """A PipelineClient whose image files go to `pipeline_canary`. Options: BaseClient's."""

    def _send(self, request: Request, deadline: Deadline) -> Any:
        return super()._send(replace(request, model=CANARY), deadline)


def is_sampled(place: int, share: float) -> bool:
    """Whether the image at `place`, from 0, is among a `share` of all, from 0 to 1, spread evenly.

    >>> [place for place in range(10) if is_sampled(place, 0.3)]
    [3, 6, 9]
    """
    return math.floor((place + 1) * share + 1e-9) > math.floor(place * share + 1e-9)


@dataclass
class Asked:
    """How one of the two ensembles did; `latencies_ms` are those of its answers."""

    errors: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def add(self, result: ImageResult, latency_ms: float) -> None:
        if result.error is None:
            self.latencies_ms.append(latency_ms)
        else:
            self.errors += 1

    def percentile_ms(self, percent: int) -> float | None:
        """By nearest rank; None where there was no answer."""
        ranked = sorted(self.latencies_ms)
        return ranked[max(0, math.ceil(percent / 100 * len(ranked)) - 1)] if ranked else None


@dataclass
class CanaryComparison:
    """What a share of a run's images found. Scores are compared class by class, where both answers have the class."""

    compared: int = 0
    same_top_1: int = 0
    largest_difference: float = 0.0  # of scores, 0 to 1
    pipeline: Asked = field(default_factory=Asked)
    canary: Asked = field(default_factory=Asked)

    def add(self, expected: ImageResult, expected_ms: float, actual: ImageResult, actual_ms: float) -> None:
        """Take one image's answers and how long each took; an image that failed in one of the two is not compared."""
        self.pipeline.add(expected, expected_ms)
        self.canary.add(actual, actual_ms)
        if expected.error or actual.error:
            return
        self.compared += 1
        self.same_top_1 += top_1(expected) == top_1(actual)
        self.largest_difference = max(self.largest_difference, largest_difference(expected, actual))

    def as_json(self) -> dict[str, Any]:
        rows = asdict(self)
        for name, asked in self._both():
            rows[name] = {
                "errors": asked.errors,
                "p50_ms": asked.percentile_ms(50),
                "p99_ms": asked.percentile_ms(99),
            }
        return rows

    def __str__(self) -> str:
        share = f" ({self.same_top_1 / self.compared:.1%})" if self.compared else ""
        lines = [
            f"{CANARY}: {self.compared:,} images compared, the same top-1 on {self.same_top_1:,}{share}, "
            f"largest difference of a score {self.largest_difference:.4f}"
        ]
        for name, asked in self._both():
            p50, p99 = (_shown(asked.percentile_ms(percent)) for percent in (50, 99))
            lines.append(f"  {name:8}  p50 {p50} ms, p99 {p99} ms, {asked.errors:,} errors")
        return "\n".join(lines)

    def _both(self) -> Sequence[tuple[str, Asked]]:
        return ("pipeline", self.pipeline), ("canary", self.canary)


def top_1(result: ImageResult) -> int | None:
    return result.classes[0].class_id if result.classes else None


def largest_difference(expected: ImageResult, actual: ImageResult) -> float:
    scores = {one.class_id: one.score for one in actual.classes}
    shared = [one for one in expected.classes if one.class_id in scores]
    return max((abs(one.score - scores[one.class_id]) for one in shared), default=0.0)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
