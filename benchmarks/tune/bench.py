"""The real measurement: a candidate is written into a copy of the repository, served, and put under load."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from benchmarks.errors import BenchmarkError
from benchmarks.perf.measurement import Load, measure_load
from benchmarks.perf.server_statistics import ENSEMBLE
from benchmarks.perf_analyzer import PerfAnalyzer
from server.errors import ServerError
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .search import Trial
from .settings import Settings, write_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scratch:
    """A copy of the repository that is tuned, into which candidates are written; Triton's logs go to `logs`."""

    repository: Path
    classifier: str
    logs: Path

    @contextlib.contextmanager
    def served(self, settings: Settings, variant: str) -> Iterator[str]:
        """The URL, gRPC, of a server for the time of the block; raises ServerError where it does not start."""
        write_settings(settings, self.repository, self.classifier, variant, [])
        options = ServerOptions(
            repository=self.repository,
            http_port=0,  # any that are free
            grpc_port=0,
            metrics_port=0,
            log=self.logs / f"triton-{variant}.log",
            triton_arguments=(f"--model-config-name={variant}",),
        )
        with TritonServer(with_free_ports(options)) as server:
            server.wait_until_ready()
            yield server.options.grpc_url


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stress:
    """How each candidate is loaded; `what` holds perf_analyzer's options for the files that are sent."""

    analyzer: PerfAnalyzer
    what: Mapping[str, str]
    window_s: float

    def trial(self, url: str, settings: Settings, concurrency: int) -> Trial:
        """Raises BenchmarkError."""
        load = Load(model=ENSEMBLE, url=url, concurrency=concurrency)
        measured = measure_load(self.analyzer, load, self.what, [], self.window_s)
        return Trial(
            settings=settings,
            concurrency=concurrency,
            images_per_s=measured.images_per_s,
            p50_ms=measured.p50_ms,
            p99_ms=measured.p99_ms,
        )


class Bench:
    """Measures one candidate after the other; a server runs on as long as only the load changes."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._running = contextlib.ExitStack()
        self._settings: Settings | None = None
        self._url = ""
        self._start_s = self._load_s = 0.0  # the longest so far of those that did not fail

    def __enter__(self) -> "Bench":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def serve(self, settings: Settings) -> str:
        """The URL of a server of these and no others; raises ServerError where it does not start."""
        if settings != self._settings:
            started = time.monotonic()
            self._running.close()
            self._settings = None  # also where the next one fails
            self._url = self._running.enter_context(self._scratch.served(settings, "candidate"))
            self._settings = settings
            self._start_s = max(self._start_s, time.monotonic() - started)
        return self._url

    def measure(self, stress: Stress, settings: Settings, concurrency: int) -> Trial:
        """A trial, with its `problem` where the candidate cannot be served, or breaks down under load."""
        try:
            url = self.serve(settings)
            started = time.monotonic()
            trial = stress.trial(url, settings, concurrency)
        except (BenchmarkError, ServerError) as error:
            self._settings = None  # whatever still runs is not used again
            return Trial(settings=settings, concurrency=concurrency, problem=str(error).strip())
        self._load_s = max(self._load_s, time.monotonic() - started)
        return trial

    def expected_s(self, starts: int, loads: int) -> float:
        """How long so many starts of a server and so many measurements take at most, as far as is known."""
        return starts * self._start_s + loads * self._load_s
