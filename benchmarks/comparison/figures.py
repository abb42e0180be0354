"""What one measurement finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from benchmarks.errors import BenchmarkError


class Group(StrEnum):
    """What a contender is, for the targets and the plot."""

    ENSEMBLE = "the ensemble"
    DIRECT = "client preprocessing"
    TUTORIAL = "tutorial gateway"
    PILLOW = "other servers, as users write them"
    OURS = "other servers with our transform"
    BARE = "bare processes, our transform"
    BARE_PILLOW = "bare processes, Pillow"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of all generators together; an error is an answer that is not one, or a connection that was closed."""

    images_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One contender under one load in one round; the fields are the columns of the CSV."""

    network: str
    contender: str
    group: Group
    concurrency: int
    round: int
    images_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    memory_mb: float  # of the server's processes, at the end of the load


def combined(results: Sequence[dict[str, Any]]) -> Figures:
    """Figures of LoadResults that were measured at the same time; BenchmarkError where there is no right answer."""
    latencies_ms = [latency for result in results for latency in result["latencies_ms"]]
    errors = sum(result["errors"] for result in results)
    if not latencies_ms:
        raise BenchmarkError(f"load: expected answers, got {errors} errors")
    p50_ms, p99_ms = np.percentile(latencies_ms, [50, 99])
    return Figures(
        images_per_s=sum(len(result["latencies_ms"]) / result["seconds"] for result in results),
        p50_ms=float(p50_ms),
        p99_ms=float(p99_ms),
        errors=errors,
    )
