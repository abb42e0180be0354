"""A server looked at again and again."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ..administration import Key, Rates, ServerStatus, rates_between, read_status
from ..errors import ClassificationError
from ..pipeline import PipelineClient


@dataclass(frozen=True)
class Look:
    """One look at the server: its status with the rates since the look before, or why there is none.

    `rates` is None where the look before had no status.
    """

    at: datetime
    status: ServerStatus | None = None
    rates: Mapping[Key, Rates] | None = None
    error: ClassificationError | None = None


def looks(client: PipelineClient, interval_s: float) -> Iterator[Look]:
    """A look each interval, for ever."""
    previous: ServerStatus | None = None
    due_s = time.monotonic()
    while True:
        look = _look(client, previous)
        yield look
        previous = look.status
        wait_s = max(0.0, due_s + interval_s - time.monotonic())  # 0 where a look took longer than the interval
        due_s = time.monotonic() + wait_s
        time.sleep(wait_s)


def _look(client: PipelineClient, previous: ServerStatus | None) -> Look:
    try:
        status = read_status(client)
    except ClassificationError as error:
        return Look(datetime.now(), error=error)
    return Look(datetime.now(), status, rates_between(previous, status) if previous else None)
