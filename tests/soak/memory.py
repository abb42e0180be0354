"""Resident memory of each process over time, and whether it grew."""

import csv
import statistics
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.service import Service, resident_mb

SAMPLE_S = 5
WARM_S, WINDOW_S = 120, 60  # the minute after the first two is compared with the last
MAX_GROWTH = 0.05


@dataclass(frozen=True)
class Sample:
    seconds: float  # since the traffic began
    process: str  # launcher, tritonserver, or a stub's name
    mb: float


@dataclass(frozen=True)
class Growth:
    """The medians of two minutes, in MB."""

    process: str
    before_mb: float
    after_mb: float

    @property
    def share(self) -> float:
        return self.after_mb / self.before_mb - 1

    @property
    def held(self) -> bool:
        return self.share <= MAX_GROWTH

    def __str__(self) -> str:
        verdict = "held" if self.held else "MISSED"
        return f"{self.process:<24} {self.before_mb:>8.1f} MB {self.after_mb:>8.1f} MB {self.share:>+7.1%}  {verdict}"


class Sampler:
    """Looks every SAMPLE_S from the beginning to the end of a `with` block."""

    def __init__(self, service: Service) -> None:
        self.samples: list[Sample] = []
        self._service, self._over = service, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        began_s = time.monotonic()
        while not self._over.wait(SAMPLE_S):
            now_s = time.monotonic() - began_s
            processes = self._service.processes()
            self.samples += [Sample(now_s, name, resident_mb(pid)) for name, pid in processes.items()]


def growths(samples: Iterable[Sample]) -> list[Growth]:
    """Of each process that was there in both minutes."""
    samples = list(samples)
    end_s = max(sample.seconds for sample in samples)
    result = []
    for name in sorted({sample.process for sample in samples}):
        own = [sample for sample in samples if sample.process == name]
        before = [sample.mb for sample in own if WARM_S <= sample.seconds < WARM_S + WINDOW_S]
        after = [sample.mb for sample in own if sample.seconds >= end_s - WINDOW_S]
        if before and after:
            result.append(Growth(name, statistics.median(before), statistics.median(after)))
    return result


def write_csv(samples: Iterable[Sample], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "process", "resident_mb"])
        writer.writerows((f"{sample.seconds:.1f}", sample.process, f"{sample.mb:.1f}") for sample in samples)
