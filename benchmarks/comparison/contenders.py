"""What is compared: each kind of contender knows how it is loaded, and how it is asked for one image."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.perf_analyzer import STRETCHED, WINDOWS, PerfAnalyzer, rate
from client import PipelineClient

from .figures import Figures, Group, combined
from .load.generator import Generator
from .load.recorder import Duration
from .processes import awake
from .requests import HOST, Encoding

MAX_BATCH_SIZE = 32  # of `pipeline`
FIRST_TURN_S = 1.0  # as long as the rate is not known


class Contender(Protocol):
    """`pids` are the processes that serve, without those that they start."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> Group: ...
    @property
    def pids(self) -> Sequence[int]: ...

    def load(self, concurrency: int, duration: Duration) -> Figures:
        """Keep `concurrency` requests of one image each in flight; raises BenchmarkError."""

    def top_class(self, file: Path) -> int:
        """The class that it names for one image; raises BenchmarkError."""


@dataclass(frozen=True, kw_only=True)
class OverHttp:
    """A server that the HTTP generator loads.

    `paused` is the process that stands still except while it is asked: LitServe's workers poll, more than a core's
    worth, and would take that from whoever is measured.
    """

    name: str
    group: Group
    pids: Sequence[int]
    port: int
    encoding: Encoding
    requests: Path  # folder
    generator: Generator
    paused: int | None = None

    def load(self, concurrency: int, duration: Duration) -> Figures:
        job = {"host": HOST, "port": self.port, "requests": str(self.requests), "concurrency": concurrency}
        with awake(self.paused):
            return combined([self.generator.ask({**job, **asdict(duration)})])

    def top_class(self, file: Path) -> int:
        with awake(self.paused):
            answer = json.loads(self.encoding.ask(self.port, file))
        return first_class(answer[0] if isinstance(answer, list) else answer)  # BentoML answers for a batch


@dataclass(frozen=True, kw_only=True)
class EnsembleOverHttp(OverHttp):
    def top_class(self, file: Path) -> int:
        return class_of_pipeline(f"http://{HOST}:{self.port}", file)


@dataclass(kw_only=True)
class EnsembleOverGrpc:
    """Loaded by perf_analyzer, which has no warm-up of its own."""

    name: str
    group: Group
    pids: Sequence[int]
    url: str
    analyzer: PerfAnalyzer
    inputs: Mapping[str, str]
    images_per_s: float | None = None  # under the load before

    def load(self, concurrency: int, duration: Duration) -> Figures:
        # perf_analyzer fails where no request ends in a window: each should see all in flight, and a whole batch.
        turn_s = (concurrency + MAX_BATCH_SIZE) / self.images_per_s if self.images_per_s else FIRST_TURN_S
        window_s = max(duration.window_s / WINDOWS / STRETCHED, turn_s)
        row = self.analyzer.load(self.url, concurrency, self.inputs, window_s)
        self.images_per_s = rate(row)
        p50_ms, p99_ms = (float(row[f"{name} latency"]) / 1000 for name in ("p50", "p99"))  # from microseconds
        # It ends at the first error.
        return Figures(images_per_s=self.images_per_s, p50_ms=p50_ms, p99_ms=p99_ms, errors=0)

    def top_class(self, file: Path) -> int:
        return class_of_pipeline(self.url, file)


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """What its generators do themselves: at concurrency 1 the one of `alone`, else `shared` together, one a core."""

    name: str
    group: Group
    servers: Sequence[int]  # processes besides the generators
    alone: Generator
    shared: Sequence[Generator]
    is_threaded: bool  # as many calls at a time as the concurrency says; else each generator makes one

    @property
    def pids(self) -> Sequence[int]:
        return [*self.servers, *(each.process.pid for each in self.shared)]

    def load(self, concurrency: int, duration: Duration) -> Figures:
        generators = [self.alone] if concurrency == 1 else self.shared
        for number, each in enumerate(generators):
            threads = len(range(number, concurrency, len(generators))) if self.is_threaded else 1
            each.send({"concurrency": threads, **asdict(duration)})
        answers = [each.receive() for each in generators]  # all, before any failure is raised
        return combined([each.checked(answer) for each, answer in zip(generators, answers, strict=True)])

    def top_class(self, file: Path) -> int:
        return first_class(self.alone.ask({"classify": str(file)}))


def first_class(answer: Mapping[str, Any]) -> int:
    return int(answer["classes"][0]["class_id"])


def class_of_pipeline(url: str, file: Path) -> int:
    with PipelineClient(url) as client:
        return client.classify(file).classes[0].class_id
