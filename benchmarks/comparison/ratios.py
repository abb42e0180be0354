"""The measurements of one run, looked up and set in relation: round by round, and the median counts."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .figures import Group, Measurement


@dataclass(frozen=True)
class Run:
    """All measurements of a run."""

    measurements: Sequence[Measurement]

    def of(self, network: str, contender: str, concurrency: int) -> list[Measurement]:
        """One a round, in their order; none where it was not measured."""
        wanted = (network, contender, concurrency)
        found = [each for each in self.measurements if (each.network, each.contender, each.concurrency) == wanted]
        return sorted(found, key=lambda each: each.round)

    def values(self, network: str, contender: str, concurrency: int, column: str) -> list[float]:
        return [getattr(each, column) for each in self.of(network, contender, concurrency)]

    def median(self, network: str, contender: str, concurrency: int, column: str) -> float:
        return statistics.median(self.values(network, contender, concurrency, column))

    def networks(self) -> list[str]:
        return list(dict.fromkeys(each.network for each in self.measurements))

    def contenders(self, *groups: Group) -> list[str]:
        """Their names, in the order in which they were measured; without `groups` those of all."""
        found = (each.contender for each in self.measurements if not groups or each.group in groups)
        return list(dict.fromkeys(found))

    def concurrencies(self, network: str, contender: str) -> list[int]:
        of = (each for each in self.measurements if (each.network, each.contender) == (network, contender))
        return sorted({each.concurrency for each in of})

    def fastest(self, network: str, concurrency: int, contenders: Iterable[str]) -> str | None:
        """The one of the highest median of images/s; None where none was measured under this load."""
        measured = [name for name in contenders if self.of(network, name, concurrency)]
        return max(measured, key=lambda name: self.median(network, name, concurrency, "images_per_s"), default=None)

    def ratio(self, network: str, concurrency: int, ours: str, theirs: str, column: str) -> float | None:
        """The median over the rounds of `ours` through `theirs`; None where one of the two was not measured."""
        reference = {each.round: getattr(each, column) for each in self.of(network, theirs, concurrency)}
        rounds = [each for each in self.of(network, ours, concurrency) if each.round in reference]
        ratios = [getattr(each, column) / reference[each.round] for each in rounds]
        return statistics.median(ratios) if ratios else None
