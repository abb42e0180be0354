"""SIGINT and SIGTERM as an exception, so that every way out of a `with` stops what it started."""

import signal
from types import FrameType


class StoppedBySignal(BaseException):
    """A signal asked this program to stop. Like KeyboardInterrupt it is no Exception: nothing may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def stop_on_signals() -> None:
    """From now on the first SIGINT or SIGTERM raises StoppedBySignal; later ones must not interrupt the cleaning up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise_once)


def _raise_once(number: int, frame: FrameType | None) -> None:
    for handled in (signal.SIGINT, signal.SIGTERM):
        signal.signal(handled, signal.SIG_IGN)
    raise StoppedBySignal(number)
