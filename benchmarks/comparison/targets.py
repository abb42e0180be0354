"""What the ensemble should reach, as ratios within one run, and whether it does."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .figures import Group
from .ratios import Run
from .rounds import COMPARED, FULL

READY_S = 10
HAND_WRITTEN = "FastAPI, Pillow"
AS_USERS_WRITE_THEM = (Group.PILLOW, Group.TUTORIAL)
RATE, MEDIAN, SLOW = "images_per_s", "p50_ms", "p99_ms"


@dataclass(frozen=True)
class Target:
    """One line of the report: a value for each form of the ensemble, of which the first counts."""

    text: str
    bound: float
    at_least: bool  # else at most
    values: Mapping[str, float]

    @property
    def is_met(self) -> bool | None:
        """None where nothing was measured that could tell."""
        if not self.values:
            return None
        value = next(iter(self.values.values()))
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        verdict = {None: "not measured", True: "met", False: "MISSED"}[self.is_met]
        values = "; ".join(f"{name.removeprefix('ensemble, ')} {value:.2f}" for name, value in self.values.items())
        return f"{self.text}: {sign} {self.bound:g}: {verdict}{f' ({values})' if values else ''}"


def targets(run: Run, ready_s: Mapping[str, float]) -> list[Target]:
    """`ready_s` has the seconds that each start of Triton took, by network and hand-over."""
    started = Target("start of Triton to ready, s, the slowest", READY_S, False, {"all": max(ready_s.values())})
    return [*of_trivial(run), *of_resnet50(run), *of_both(run), started]


def of_trivial(run: Run) -> Iterator[Target]:
    network = "trivial"
    others = run.fastest(network, COMPARED, run.contenders(*AS_USERS_WRITE_THEM))
    with_ours = run.fastest(network, COMPARED, run.contenders(Group.OURS))
    for bound, name, theirs in (
        (1.0, "the best other server as users write it", others),
        (4.0, "the tutorial gateway", run.fastest(network, COMPARED, run.contenders(Group.TUTORIAL))),
        (0.75, "the bare processes with our transform", run.fastest(network, COMPARED, run.contenders(Group.BARE))),
        (0.9, "the best other server with our transform", with_ours),
    ):
        yield against(run, network, COMPARED, theirs, name, RATE, bound)
    yield against(run, network, 1, HAND_WRITTEN, "the hand-written server", MEDIAN, 1.0)

    def tail(name: str) -> float | None:
        rounds = run.of(network, name, 1)
        return run.median(network, name, 1, SLOW) / run.median(network, name, 1, MEDIAN) if rounds else None

    bare = [f"{each:.2f}" for each in map(tail, run.contenders(Group.BARE)) if each is not None]
    of_images = f" (a bare process, which has only the images' differences: {bare[0]})" if bare else ""
    yield Target(f"{network}, 1: p99 to the median{of_images}", 2.0, False, each_form(run, network, tail))


def of_resnet50(run: Run) -> Iterator[Target]:
    network = "resnet50"
    best = run.fastest(network, COMPARED, run.contenders(*AS_USERS_WRITE_THEM, Group.OURS))
    yield against(run, network, COMPARED, best, "the best other server", RATE, 1.0)
    bare = next(iter(run.contenders(Group.BARE)), None)
    yield against(run, network, 1, bare, "one process with our transform and every core", MEDIAN, 1.1)


def of_both(run: Run) -> Iterator[Target]:
    direct = next(iter(run.contenders(Group.DIRECT)), None)
    for network in run.networks():
        for concurrency in (*FULL.concurrencies, *FULL.high_concurrencies):
            for column, bound in ((RATE, 1.0), (SLOW, 1.0)):
                yield against(run, network, concurrency, direct, "client preprocessing", column, bound)
        for concurrency in FULL.high_concurrencies:
            yield at_its_best(run, network, concurrency)
            yield growth(run, network, concurrency)


def against(
    run: Run, network: str, concurrency: int, theirs: str | None, name: str, column: str, bound: float
) -> Target:
    """The ensemble's ratio to `theirs`, which the text calls `name`; throughput at least, a latency at most `bound`."""
    words = {RATE: "throughput", MEDIAN: "median latency", SLOW: "p99"}[column]
    called = name if theirs is None or name == f"the {theirs}" else f"{name} ({theirs})"

    def ratio(ours: str) -> float | None:
        return run.ratio(network, concurrency, ours, theirs, column) if theirs else None

    text = f"{network}, {concurrency}: {words} to that of {called}"
    return Target(text, bound, column == RATE, each_form(run, network, ratio))


def at_its_best(run: Run, network: str, concurrency: int) -> Target:
    def ratio(name: str) -> float | None:
        rates = {load: run.median(network, name, load, RATE) for load in run.concurrencies(network, name)}
        return rates[concurrency] / max(rates.values()) if concurrency in rates else None

    return Target(f"{network}, {concurrency}: throughput to its own best", 0.95, True, each_form(run, network, ratio))


def growth(run: Run, network: str, concurrency: int) -> Target:
    def ratio(name: str) -> float | None:
        memory_mb = run.values(network, name, concurrency, "memory_mb")
        return memory_mb[-1] / memory_mb[0] if len(memory_mb) > 1 else None

    text = f"{network}, {concurrency}: memory after the last round to that after the first"
    return Target(text, 1.1, False, each_form(run, network, ratio))


def each_form(run: Run, network: str, value: Callable[[str], float | None]) -> dict[str, float]:
    """Of the ensemble; the fastest at COMPARED first: the same counts for all targets, however others do in one."""
    names = run.contenders(Group.ENSEMBLE)
    best = run.fastest(network, COMPARED, names)
    values = {name: value(name) for name in sorted(names, key=lambda name: name != best)}
    return {name: each for name, each in values.items() if each is not None}
