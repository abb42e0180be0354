"""One measurement: a model under a load over one protocol, seen by perf_analyzer and by Triton's statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.errors import BenchmarkError
from benchmarks.perf_analyzer import PerfAnalyzer, rate

from .server_statistics import StepTimes, read_statistics, step_times


@dataclass(frozen=True, kw_only=True)
class Load:
    """`concurrency` requests of one image each in flight, to `model` at `url` (grpc://HOST:PORT or http://...)."""

    model: str
    url: str
    concurrency: int

    @property
    def protocol(self) -> str:
        return self.url.partition("://")[0]

    def __str__(self) -> str:
        return f"{self.model} over {self.protocol}, concurrency {self.concurrency}"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The latencies are the client's, in ms; `steps` has the models that the requests went through, by name."""

    model: str
    protocol: str
    concurrency: int
    images_per_s: float
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    steps: Mapping[str, StepTimes]

    @property
    def outside_ms(self) -> float:
        """The mean latency less that of the steps: the client, the network, and Triton between the steps.

        Never below 0, as it may come out because the statistics also cover perf_analyzer's warm-up.
        """
        return max(0.0, self.mean_ms - sum(step.all_ms for step in self.steps.values()))

    @property
    def accounted_ms(self) -> float:
        """The steps and what is outside of them: the mean latency, but for what the warm-up adds."""
        return sum(step.all_ms for step in self.steps.values()) + self.outside_ms

    def __str__(self) -> str:
        return f"{self.images_per_s:.1f} images/s, p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"


def plan(models: Sequence[str], urls: Sequence[str], concurrencies: Sequence[int]) -> list[Load]:
    return [
        Load(model=model, url=url, concurrency=concurrency)
        for model in models
        for concurrency in concurrencies
        for url in urls
    ]


def measure_load(
    analyzer: PerfAnalyzer, load: Load, what: Mapping[str, str], steps: Sequence[str], window_s: float
) -> Measurement:
    """Put the load on the server; `what` holds perf_analyzer's options for the model, `steps` the models behind it.

    Raises BenchmarkError.
    """
    before = read_statistics(load.url)
    try:
        row = analyzer.load(load.url, load.concurrency, what, window_s)
    except BenchmarkError as error:
        hint = f"where a request takes longer than the {window_s:g} s of a window, give a longer --window-s"
        raise BenchmarkError(f"{load}: {str(error).rstrip()}\n{hint}") from error
    after = read_statistics(load.url)
    return measurement(load, row, {step: step_times(before, after, step) for step in steps})


def measurement(load: Load, row: Mapping[str, str], steps: Mapping[str, StepTimes]) -> Measurement:
    """From a row of perf_analyzer's report, which has microseconds."""
    latencies = {"mean_ms": "Avg latency", "p50_ms": "p50 latency", "p90_ms": "p90 latency", "p99_ms": "p99 latency"}
    return Measurement(
        model=load.model,
        protocol=load.protocol,
        concurrency=load.concurrency,
        images_per_s=rate(row),
        **{name: float(row[heading]) / 1000 for name, heading in latencies.items()},
        steps=steps,
    )
