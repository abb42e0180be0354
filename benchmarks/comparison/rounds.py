"""Who is measured when: in each round each load, and under each load one contender after the other."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.running import left

from .contenders import Contender
from .figures import Group, Measurement
from .load.recorder import Duration
from .processes import memory_mb

CONCURRENCIES = (1, 4, 16)
HIGH_CONCURRENCIES = (64, 256)  # for the ensemble, client preprocessing, and the best of the others
COMPARED = 16  # by it the best are chosen
BARE_CONCURRENCIES = (1, COMPARED)  # a process each, whatever the concurrency: 4 would be the same
BARE = (Group.BARE, Group.BARE_PILLOW)
FINALISTS = (Group.ENSEMBLE, Group.DIRECT)
CHOSEN = (Group.PILLOW, Group.OURS)  # the best of each


@dataclass
class Progress:
    """Counts the measurements of all networks."""

    total: int
    done: int = 0
    started: float = 0.0

    def begin(self, what: str) -> None:
        self.started = self.started or time.monotonic()
        print(f"{self.done + 1} of {self.total}: {what}", end=" ... ", flush=True)

    def end(self, each: Measurement) -> None:
        self.done += 1
        left_s = (time.monotonic() - self.started) / self.done * (self.total - self.done)
        errors = f", {each.errors} errors" if each.errors else ""
        print(
            f"{each.images_per_s:.1f} images/s, p50 {each.p50_ms:.1f} ms, p99 {each.p99_ms:.1f} ms{errors}; "
            f"{left(left_s)}",
            flush=True,
        )


def count_of_loads(contenders: Sequence[Contender], rounds: int) -> int:
    groups = [contender.group for contender in contenders]
    usual = sum(len(BARE_CONCURRENCIES if group in BARE else CONCURRENCIES) for group in groups)
    finalists = sum(group in FINALISTS for group in groups) + sum(group in groups for group in CHOSEN)
    return rounds * (usual + len(HIGH_CONCURRENCIES) * finalists)


def measure_rounds(
    network: str, contenders: Sequence[Contender], rounds: int, duration: Duration, progress: Progress
) -> Iterator[Measurement]:
    """Every other round runs backwards, so that drifts of the machine cancel."""
    measured: list[Measurement] = []
    finalists: list[Contender] = []
    for number in range(rounds):
        turns = list(contenders)[:: -1 if number % 2 else 1]
        for concurrency in (*CONCURRENCIES, *HIGH_CONCURRENCIES):
            if concurrency in HIGH_CONCURRENCIES:
                finalists = finalists or choose_finalists(contenders, measured)
            for contender in turns:
                if is_measured(contender, concurrency, finalists):
                    progress.begin(f"{network}, {contender.name}, concurrency {concurrency}")
                    measured.append(measure(network, contender, concurrency, number + 1, duration))
                    progress.end(measured[-1])
                    yield measured[-1]


def is_measured(contender: Contender, concurrency: int, finalists: Sequence[Contender]) -> bool:
    if contender.group in BARE:
        return concurrency in BARE_CONCURRENCIES
    return concurrency in CONCURRENCIES or contender in finalists


def choose_finalists(contenders: Iterable[Contender], measured: Iterable[Measurement]) -> list[Contender]:
    rates = {each.contender: each.images_per_s for each in measured if each.concurrency == COMPARED}
    groups = [[each for each in contenders if each.group == group] for group in CHOSEN]
    best = [max(group, key=lambda each: rates[each.name]) for group in groups if group]
    return [each for each in contenders if each.group in FINALISTS] + best


def measure(network: str, contender: Contender, concurrency: int, number: int, duration: Duration) -> Measurement:
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
