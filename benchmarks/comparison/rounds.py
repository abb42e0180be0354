"""Who is measured when: in each round each load, and under each load one contender after the other."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.errors import BenchmarkError
from benchmarks.running import left

from .contenders import Contender
from .figures import Group, Measurement
from .load.recorder import Duration
from .processes import memory_mb

COMPARED = 16  # requests in flight: by their throughput the best are chosen
BARE_CONCURRENCIES = (1, COMPARED)  # a process each, whatever the concurrency: others would be the same
BARE = (Group.BARE, Group.BARE_PILLOW)
FINALISTS = (Group.ENSEMBLE, Group.DIRECT)
CHOSEN = (Group.PILLOW, Group.OURS)  # the best of each


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Every load of every round. `high_concurrencies` are for FINALISTS and the best of CHOSEN."""

    rounds: int
    duration: Duration
    concurrencies: Sequence[int]
    high_concurrencies: Sequence[int]

    def loads(self, contenders: Sequence[Contender]) -> int:
        """How many measurements there will be of one network."""
        groups = [contender.group for contender in contenders]
        usual = sum(len(BARE_CONCURRENCIES if group in BARE else self.concurrencies) for group in groups)
        finalists = sum(group in FINALISTS for group in groups) + sum(group in groups for group in CHOSEN)
        return self.rounds * (usual + len(self.high_concurrencies) * finalists)


FULL = Schedule(
    rounds=3,
    duration=Duration(warm_up_s=0.7, window_s=3),
    concurrencies=(1, 4, 16),
    high_concurrencies=(64, 256),
)
QUICK = Schedule(
    rounds=1,
    duration=Duration(warm_up_s=0.3, window_s=0.9),
    concurrencies=(1, 16),
    high_concurrencies=(64,),
)


@dataclass
class Progress:
    """Counts the measurements of all networks, and tells each."""

    total: int = 0  # not known before the contenders are
    done: int = 0
    started: float = 0.0

    def begin(self, what: str) -> None:
        self.started = self.started or time.monotonic()
        print(f"{self.done + 1} of {self.total}: {what}", end=" ... ", flush=True)

    def end(self, each: Measurement) -> None:
        self.done += 1
        errors = f", {each.errors} errors" if each.errors else ""
        print(f"{each.images_per_s:.1f} images/s, p50 {each.p50_ms:.1f} ms, p99 {each.p99_ms:.1f} ms{errors}", end="")
        left_s = (time.monotonic() - self.started) / self.done * (self.total - self.done)
        print(f"; {left(left_s)}", flush=True)

    def fail(self, error: BenchmarkError) -> None:
        self.done += 1
        print("failed", flush=True)
        print(error, file=sys.stderr)


def measure_rounds(
    network: str, contenders: Sequence[Contender], schedule: Schedule, progress: Progress
) -> Iterator[Measurement]:
    """Every other round runs backwards, so that drifts of the machine cancel. A load that fails leaves a gap."""
    measured: list[Measurement] = []
    finalists: list[Contender] = []
    for number in range(schedule.rounds):
        turns = list(contenders)[:: -1 if number % 2 else 1]
        for concurrency in (*schedule.concurrencies, *schedule.high_concurrencies):
            is_high = concurrency in schedule.high_concurrencies
            finalists = finalists or (choose_finalists(contenders, measured) if is_high else [])
            for contender in turns:
                if not is_measured(contender, concurrency, finalists if is_high else contenders):
                    continue
                progress.begin(f"{network}, {contender.name}, concurrency {concurrency}")
                try:
                    measured.append(measure(network, contender, concurrency, number + 1, schedule.duration))
                except BenchmarkError as error:
                    progress.fail(error)
                else:
                    progress.end(measured[-1])
                    yield measured[-1]


def is_measured(contender: Contender, concurrency: int, candidates: Sequence[Contender]) -> bool:
    return contender in candidates and (contender.group not in BARE or concurrency in BARE_CONCURRENCIES)


def choose_finalists(contenders: Sequence[Contender], measured: Iterable[Measurement]) -> list[Contender]:
    rates = {each.contender: each.images_per_s for each in measured if each.concurrency == COMPARED}
    groups = [[each for each in contenders if each.group == group] for group in CHOSEN]
    best = [max(group, key=lambda each: rates.get(each.name, 0)) for group in groups if group]
    return [each for each in contenders if each.group in FINALISTS] + best


def measure(network: str, contender: Contender, concurrency: int, number: int, duration: Duration) -> Measurement:
    """Raises BenchmarkError."""
    figures = contender.load(concurrency, duration)
    return Measurement(
        network=network,
        contender=contender.name,
        group=contender.group,
        concurrency=concurrency,
        round=number,
        **asdict(figures),
        memory_mb=memory_mb(contender.pids),
    )
