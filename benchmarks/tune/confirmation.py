"""The winner against the defaults, by turns and anew: the best of many noisy figures also was the luckiest."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .bench import Scratch, Stress
from .search import Goal, Trial

ROUNDS = 5  # a candidate no better than the defaults wins all of them once in 32 times
STARTS, LOADS = 2, 3 * ROUNDS  # the most that they take


@dataclass(frozen=True)
class Confirmation:
    """Trials of the same rounds."""

    defaults: Sequence[Trial]
    winner: Sequence[Trial]

    def objection(self, goal: Goal) -> str:
        """Why the winner is not to be taken; empty where it is."""
        p99_ms = median(self.winner, "p99_ms")
        if not goal.is_met(p99_ms):
            return f"its p99 was {p99_ms:.1f} ms, expected at most {goal.latency_ms:g}"
        if not goal.is_met(median(self.defaults, "p99_ms")):
            return ""  # the defaults miss the bound, so that their throughput does not count
        pairs = zip(self.winner, self.defaults, strict=True)
        won = sum(one.images_per_s > other.images_per_s for one, other in pairs)
        return "" if won == len(self.winner) else f"it was faster in {won} of {len(self.winner)} rounds, expected all"

    def __str__(self) -> str:
        winner, defaults = (
            f"{median(trials, 'images_per_s'):.1f} images/s at a p99 of {median(trials, 'p99_ms'):.1f} ms"
            for trials in (self.winner, self.defaults)
        )
        gain = median(self.winner, "images_per_s") / median(self.defaults, "images_per_s")
        return f"{winner}, the defaults {defaults} ({gain:.2f} times; medians of {len(self.winner)} rounds)"


def median(trials: Sequence[Trial], figure: str) -> float:
    values: list[float] = [getattr(trial, figure) for trial in trials]
    return statistics.median(values)


def confirm(defaults: Trial, winner: Trial, goal: Goal, scratch: Scratch, stress: Stress) -> Confirmation:
    """Serve both side by side and load them by turns; raises BenchmarkError and ServerError.

    The defaults get the winner's load besides their own, and the better counts: the search may have misjudged theirs.
    """
    loads = sorted({defaults.concurrency, winner.concurrency})
    with (
        scratch.served(defaults.settings, "defaults") as defaults_url,
        scratch.served(winner.settings, "winner") as winner_url,
    ):
        rounds: list[tuple[Trial, Trial]] = []
        for number in range(ROUNDS):
            first = goal.best_of([stress.trial(defaults_url, defaults.settings, load) for load in loads])
            second = stress.trial(winner_url, winner.settings, winner.concurrency)
            rounds.append((first, second))
            print(f"round {number + 1} of {ROUNDS}: defaults {first}; winner {second}", flush=True)
    return Confirmation(*zip(*rounds, strict=True))
