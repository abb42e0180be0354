"""SIGINT, SIGTERM and SIGHUP as an exception, so that every way out of a `with` stops what it started."""

import signal
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a supervisor, a terminal that is closed


class StoppedBySignal(BaseException):
    """A signal asked this program to stop. Like KeyboardInterrupt it is no Exception: nothing may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def stop_on_signals() -> None:
    """From now on the first such signal raises StoppedBySignal; later ones must not interrupt the cleaning up."""
    for number in STOPPING:
        signal.signal(number, _raise_once)


def _raise_once(number: int, frame: FrameType | None) -> None:
    for handled in STOPPING:
        signal.signal(handled, signal.SIG_IGN)
    raise StoppedBySignal(number)
