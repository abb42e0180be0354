"""SIGINT, SIGTERM and SIGHUP as an exception, so that every way out of a `with` stops what it started."""

import contextlib
import signal
import threading
from collections.abc import Iterator
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
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup wants SIGHUP ignored
            signal.signal(number, _raise_once)


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """For the time of what must not be broken off half-way: a signal is heard at its end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """For the time of a clean-up, which a signal must not break off. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _raise_once(number: int, frame: FrameType | None) -> None:
    for handled in STOPPING:
        signal.signal(handled, signal.SIG_IGN)
    raise StoppedBySignal(number)
