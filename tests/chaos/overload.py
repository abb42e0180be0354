"""Ten times what the service can do, for a minute.

Full load is as many requests in flight as its queues hold, each caller waiting for its answer. The overload is a clock:
requests come at ten times the rate that full load was answered at, whether or not there are answers.
"""

import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from server.installation import ROOT

from .fault import Row
from .flood import AT_ONCE_S
from .load import Outcome, Photo, Tally
from .messages import http_request
from .service import Service, resident_mb

QUEUE = 512  # requests that the service takes
FULL_S, OVERLOAD_S = 30, 60
TIMES = 10
MAX_P99_TIMES = 2
MAX_MEMORY_TIMES = 1.25  # of full load: refused requests are in memory too, for a moment
RECOVERED_S = 2
SAMPLE_S = 0.5


class Flood:
    """What flood.py reports of one flood."""

    def __init__(self, service: Service, photo: Photo, *arguments: str) -> None:
        with tempfile.NamedTemporaryFile() as request:
            Path(request.name).write_bytes(http_request(photo.file))
            address = [str(service.options.http_port), request.name, str(photo.class_id)]
            command = [sys.executable, "-m", "tests.chaos.flood", *address, *arguments]
            with PeakMemory(service) as memory:
                done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        report = json.loads(done.stdout)
        self.peak_mb: float = memory.peak_mb
        self.counts: Counter[str] = Counter(report["counts"])
        self.rate: float = report["rate"]  # images/s answered
        self.answered_s: Sequence[float] = report["answered_s"]
        self.refused_s: Sequence[float] = report["refused_s"]
        self.probes: Sequence[tuple[float, str, float]] = report["probes"]
        self.late_s: float = report["late_s"]

    def tally(self) -> Tally:
        counts = Counter({Outcome(name): count for name, count in self.counts.items()})
        return Tally(counts, max([*self.answered_s, *self.refused_s], default=0))


class PeakMemory:
    """The most resident memory, in MB, of Triton and its stubs together, looked at every SAMPLE_S of a `with` block."""

    def __init__(self, service: Service) -> None:
        self.peak_mb = 0.0
        self._service, self._over = service, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.peak_mb = max(self.peak_mb, sum(map(resident_mb, self._service.processes().values())))


def overload(service: Service, photo: Photo, full_s: float = FULL_S, overload_s: float = OVERLOAD_S) -> Row:
    full = Flood(service, photo, "--in-flight", str(QUEUE), "--seconds", str(full_s))
    rate = TIMES * full.rate
    over = Flood(service, photo, "--rate", f"{rate:.1f}", "--seconds", str(overload_s))
    recovered_s = max((sent_s for sent_s, outcome, _ in over.probes if outcome != Outcome.ANSWERED), default=0.0)
    row = Row(fault=f"{TIMES} times the capacity for {overload_s:g} s", own=over.tally(), whole_again_s=recovered_s)
    row.notes = notes(full, over, rate)
    row.misses = misses(full, over, recovered_s)
    return row


def notes(full: Flood, over: Flood, rate: float) -> list[str]:
    at_once = (sent_s for sent_s, outcome, s in over.probes if outcome == Outcome.ANSWERED and s < AT_ONCE_S)
    empty_s = next(at_once, float("nan"))
    return [
        f"Full load, {QUEUE} HTTP requests in flight: {full.rate:.1f} images/s, p50 {p(full.answered_s, 50):.2f} s, "
        f"p99 {p(full.answered_s, 99):.2f} s, {full.peak_mb:.0f} MB.",
        f"Overload, {rate:.0f} HTTP requests/s by the clock, at most {over.late_s:.2f} s late, on the "
        f"same machine: {over.rate:.1f} images/s answered, p50 {p(over.answered_s, 50):.2f} s, p99 "
        f"{p(over.answered_s, 99):.2f} s; refused after {p(over.refused_s, 50) * 1000:.0f} ms (median) and "
        f"{p(over.refused_s, 99) * 1000:.0f} ms (p99); {over.peak_mb:.0f} MB.",
        f"The first request to be answered within {AT_ONCE_S} s, once the queue was empty, came {empty_s:.1f} s after "
        "the end.",
    ]


def p(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else float("nan")


def misses(full: Flood, over: Flood, recovered_s: float) -> list[str]:
    found = []
    times = p(over.answered_s, 99) / p(full.answered_s, 99)
    if not times <= MAX_P99_TIMES:
        found.append(f"p99 of what was answered {times:.2f} times that at full load, at most {MAX_P99_TIMES} expected")
    if over.peak_mb > MAX_MEMORY_TIMES * full.peak_mb:
        found.append(f"memory {over.peak_mb:.0f} MB, at full load {full.peak_mb:.0f} MB")
    if recovered_s > RECOVERED_S or not over.probes:
        found.append(f"refused for {recovered_s:.1f} s after its end, at most {RECOVERED_S} s expected")
    for outcome in (Outcome.REJECTED, Outcome.FAILED, Outcome.LOST, Outcome.WRONG):
        if over.counts[outcome]:
            found.append(f"{over.counts[outcome]} {outcome}")
    return found
