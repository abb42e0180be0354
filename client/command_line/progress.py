"""What a person sees on standard error while a long run goes on: a bar on a terminal, else now and then a line."""

import logging
import sys
import time
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import Any

from ..deadline import log
from ..results import ImageResult

LINE_EVERY_S = 10.0


class Progress(logging.Handler):
    """Counts the images that are done, and tells of retries, which the client logs."""

    def __init__(self, total: int | None, output: Path | None) -> None:
        super().__init__(logging.INFO)
        self._total, self._done, self._failed, self._retries = total, 0, 0, 0
        self._started = self._shown = time.monotonic()
        self._noted = 0.0
        # Where the results go to the same terminal they are the progress.
        is_in_the_way = output is None and sys.stdout.isatty()
        self._bar = _make_bar() if sys.stderr.isatty() and not is_in_the_way else None

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
            self._bar.add_task("", total=self._total)
        log.addHandler(self)
        log.setLevel(logging.INFO)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        log.removeHandler(self)
        if self._bar:
            self._bar.stop()
        if self._total != 1:
            print(self._summary(), file=sys.stderr)

    def add(self, result: ImageResult) -> None:
        """Count one image."""
        self._done += 1
        self._failed += result.error is not None
        if self._bar:
            self._bar.update(0, completed=self._done, description=self._state())
        elif time.monotonic() - self._shown > LINE_EVERY_S:
            self._shown = time.monotonic()
            print(self._summary(), file=sys.stderr, flush=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the client's log, from any thread."""
        self._retries += 1
        if self._bar:
            self._bar.update(0, description=f"[yellow]{_short(record.getMessage())}")
        elif time.monotonic() - self._noted > LINE_EVERY_S:
            self._noted = time.monotonic()
            print(record.getMessage(), file=sys.stderr, flush=True)

    def _state(self) -> str:
        """What stands beside the bar."""
        return f"{self._failed} failed" if self._failed else ""

    def _summary(self) -> str:
        retries = f", {self._retries} requests sent again" if self._retries else ""
        counts = f"{self._done:,} of {self._total:,} images, {self._failed:,} failed"
        return f"{counts}, {self._speed(self._done, 'images')}{retries}"

    def _speed(self, count: int, what: str) -> str:
        seconds = time.monotonic() - self._started
        return f"{seconds:.1f} s, {count / seconds:.1f} {what}/s"


class VideoProgress(Progress):
    """The same for a video of which each `every`th frame is classified; `total`, of frames, is None for a camera."""

    def __init__(self, total: int | None, every: int, output: Path | None) -> None:
        super().__init__(None if total is None else ceil(total / every), output)
        self._every, self._frames = every, 0

    def add_frame(self, result: ImageResult | None) -> None:
        """Count the next frame that was read; `result` is None where it was left out or dropped."""
        self._frames += 1
        if result is not None:
            self.add(result)

    @property
    def _dropped(self) -> int:
        return ceil(self._frames / self._every) - self._done

    def _state(self) -> str:
        fps = self._frames / (time.monotonic() - self._started)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{fps:.1f}/s, {self._dropped} dropped{failed}"

    def _summary(self) -> str:
        counts = (
            f"{self._frames:,} frames, {self._done:,} classified, {self._dropped:,} dropped, {self._failed:,} failed"
        )
        retries = f", {self._retries} times connected again" if self._retries else ""
        return f"{counts}, {self._speed(self._frames, 'frames')}{retries}"


def _make_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:  # without the extra `cli`
        return None
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=Console(stderr=True), redirect_stdout=False)


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
