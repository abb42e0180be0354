"""The search, without a server: which candidate is measured next, and which is the best so far."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .settings import Change, Settings

MIN_GAIN = 1.03  # less is within the noise of one measurement
PROMISING = 0.9  # of the best throughput: what is slower still with as many requests in flight is not looked into
FIRST_CONCURRENCY, MAX_CONCURRENCY = 4, 256


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate with `concurrency` requests of one image each in flight, and the latencies that clients then saw."""

    settings: Settings
    concurrency: int
    images_per_s: float = 0.0
    p50_ms: float = math.inf
    p99_ms: float = math.inf
    problem: str = ""  # why it could not be measured

    def __str__(self) -> str:
        figures = f"{self.images_per_s:.1f} images/s, p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"
        return f"failed: {self.problem}".partition("\n")[0] if self.problem else figures


@dataclass(frozen=True)
class Goal:
    """The most images/s with a p99 of at most `latency_ms`."""

    latency_ms: float = math.inf

    def is_met(self, p99_ms: float) -> bool:
        return p99_ms <= self.latency_ms

    def prefers(self, one: Trial, other: Trial) -> bool:
        """Whether `one` is better by more than noise; where both miss the bound, the nearer one is."""
        met, other_met = self.is_met(one.p99_ms), self.is_met(other.p99_ms)
        if met != other_met:
            return met
        if met:
            return one.images_per_s > MIN_GAIN * other.images_per_s
        return MIN_GAIN * one.p99_ms < other.p99_ms

    def best_of(self, trials: Iterable[Trial]) -> Trial:
        return functools.reduce(lambda best, one: one if self.prefers(one, best) else best, trials)


class OutOfTimeError(Exception):
    """The budget does not cover another measurement."""


class Search:
    """One coordinate after the other, each value of it with the best of the others, until a round gains nothing.

    With each candidate the requests in flight are doubled as long as that gains, or halved until the bound is kept.
    Nothing is measured twice. What is measured depends on nothing but the figures that `measure` returns.
    """

    def __init__(self, goal: Goal, measure: Callable[[Settings, int], Trial], time_is_left: Callable[[], bool]) -> None:
        self.goal, self._measure, self._time_is_left = goal, measure, time_is_left
        self._measured: dict[tuple[Settings, int], Trial] = {}
        self.best: Trial  # from the first measurement on

    def run(self, start: Settings, coordinates: Iterable[Sequence[Change]]) -> Trial:
        """Return the best trial; `start` is measured whatever the budget is."""
        self.best = self._measured[start, FIRST_CONCURRENCY] = self._measure(start, FIRST_CONCURRENCY)
        with contextlib.suppress(OutOfTimeError):
            self._with_its_best_load(start, FIRST_CONCURRENCY)
            self._descend([change for changes in coordinates for change in changes])
        return self.best

    def _descend(self, changes: Sequence[Change]) -> None:
        before = None
        while before is not self.best:
            before = self.best
            for change in changes:
                self._with_its_best_load(self.best.settings.changed(change), self.best.concurrency)

    def _with_its_best_load(self, settings: Settings, concurrency: int) -> None:
        trial = self._try(settings, concurrency)
        while self._is_promising(trial) and not self.goal.is_met(trial.p99_ms) and trial.concurrency > 1:
            trial = self._try(settings, trial.concurrency // 2)
        while self._is_promising(trial) and self.goal.is_met(trial.p99_ms) and trial.concurrency < MAX_CONCURRENCY:
            more = self._try(settings, 2 * trial.concurrency)
            if not self.goal.prefers(more, trial):
                break
            trial = more

    def _is_promising(self, trial: Trial) -> bool:
        if trial.problem:
            return False
        return not self.goal.is_met(self.best.p99_ms) or trial.images_per_s > PROMISING * self.best.images_per_s

    def _try(self, settings: Settings, concurrency: int) -> Trial:
        key = settings, concurrency
        if key not in self._measured:
            if not self._time_is_left():
                raise OutOfTimeError
            self._measured[key] = self._measure(settings, concurrency)
        trial = self._measured[key]
        if self.goal.prefers(trial, self.best):
            self.best = trial
        return trial
