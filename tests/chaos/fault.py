"""One fault: done while the good traffic goes on, watched until all is whole again, and judged."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .load import ANSWER_TIMEOUT_S, Load, Outcome, Tally, ended_since, tally
from .service import Service

BEFORE_S = 0.5  # of good traffic
QUIET_S = 1.5  # without a failure: then all is whole. A dead stub fails requests after 1 s
LEAST_ANSWERS = 16  # in that time
WHOLE_TIMEOUT_S = 20
LOOK_S = 0.05
NEVER = (Outcome.REJECTED, Outcome.FAILED, Outcome.LOST, Outcome.WRONG)  # what good traffic must not see


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What must hold for the good traffic; of its outcomes NEVER none may come."""

    longest_s: float = ANSWER_TIMEOUT_S
    whole_again_s: float = 3
    may_be_refused: bool = False  # with an error that may be asked again
    may_fail: bool = False  # with one that may not


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`inject` does it, and returns what became of its own requests, if it sends any, when it is over."""

    name: str
    inject: Callable[[Service], Tally | None]
    limits: Limits = field(default_factory=Limits)
    own: tuple[Outcome, ...] = (Outcome.ANSWERED, Outcome.REJECTED)  # what its own requests may end in


@dataclass(kw_only=True)
class Row:
    """What became of one fault; it held where there are no `misses`."""

    fault: str
    steady: Tally = field(default_factory=Tally)  # the plain callers
    client: Tally = field(default_factory=Tally)  # the project's client
    own: Tally | None = None
    whole_again_s: float | None = None
    misses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def observe(fault: Fault, service: Service, load: Load, slack: float) -> Row:
    """Do it, and wait until everything is whole again, at most WHOLE_TIMEOUT_S.

    The limits in seconds may be exceeded `slack` times, on a machine that does other things too.
    """
    time.sleep(BEFORE_S)
    begun_s = time.monotonic()
    try:
        own = fault.inject(service)
    except OSError as error:  # the server is away, or ended the connection of somebody who did not expect it
        own = Tally()
        own.add(Outcome.LOST, 0, f"{type(error).__name__}: {error}")
    whole_again_s = time_until_whole(service, load, time.monotonic())
    row = Row(
        fault=fault.name,
        steady=tally(ended_since(load.records, begun_s)),
        client=tally(ended_since(load.client_records, begun_s)),
        own=own,
        whole_again_s=whole_again_s,
    )
    row.misses = misses(row, fault, slack)
    return row


def time_until_whole(service: Service, load: Load, injected_s: float) -> float | None:
    """Seconds from the end of the fault to the last failure, and until every process is back; None where never."""
    lacking_s = injected_s  # until when a process was missing
    while time.monotonic() < injected_s + WHOLE_TIMEOUT_S:
        time.sleep(LOOK_S)
        if not service.is_whole():
            lacking_s = time.monotonic()
        since_s = max([lacking_s, *(each.ended_s for each in load.records[:] if each.outcome != Outcome.ANSWERED)])
        quiet_s = time.monotonic() - since_s
        answers = sum(1 for _ in ended_since(load.records, since_s))
        if quiet_s > QUIET_S and answers >= LEAST_ANSWERS and load.oldest_wait_s() < QUIET_S:
            return since_s - injected_s
    return None


def misses(row: Row, fault: Fault, slack: float) -> list[str]:
    """Each limit that was missed, in words."""
    limits, found = fault.limits, []
    never = [one for one in NEVER if not (one == Outcome.FAILED and limits.may_fail)]
    for outcome in never if limits.may_be_refused else [Outcome.REFUSED, *never]:
        if row.steady.counts[outcome]:
            found.append(f"{row.steady.counts[outcome]} {outcome}: {row.steady.texts.get(outcome, '')}")
    longest_s, whole_again_s = slack * limits.longest_s, slack * limits.whole_again_s
    if row.steady.longest_s > longest_s:
        found.append(f"longest answer {row.steady.longest_s:.2f} s, at most {longest_s:g} s expected")
    if row.whole_again_s is None or row.whole_again_s > whole_again_s:
        took = "not" if row.whole_again_s is None else f"after {row.whole_again_s:.2f} s"
        found.append(f"whole again {took}, expected within {whole_again_s:g} s")
    unanswered = row.client.sent - row.client.counts[Outcome.ANSWERED]
    if unanswered and not limits.may_fail:
        found.append(f"{unanswered} images of the project's client without a right result: {texts(row.client)}")
    if row.own:
        bad = [outcome for outcome in Outcome if row.own.counts[outcome] and outcome not in fault.own]
        found += [f"its own requests: {row.own.counts[one]} {one}: {row.own.texts.get(one, '')}" for one in bad]
    return found


def texts(one: Tally) -> str:
    return "; ".join(one.texts.values())
