"""Where the results of a run go: text, annotated copies, a page; and what a run that was broken off has left there."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import SERVICE_CODES
from ..results import ImageResult
from .files import written_beside
from .formats import FORMATS, Csv, JsonLines, Table
from .options import UsageError
from .sources import Source


class Output:
    """Takes each result as it comes.

    `done` are the names of the images that an earlier run has finished; `problems` counts the copies that could not be
    written.
    """

    def __init__(
        self, text: Table | JsonLines | Csv, done: set[str], report: Any, copies: Path | None, replace_copies: bool
    ) -> None:
        self.done, self.problems = done, 0
        self._text, self._report, self._copies, self._replace_copies = text, report, copies, replace_copies

    def add(self, source: Source, result: ImageResult) -> None:
        """The text comes last: what has its line there has its copy too."""
        if self._copies is not None:
            self._write_copy(source, result)
        if self._report is not None:
            self._report.add(source.name, source.image, result)
        self._text.add(source.name, result)

    def _write_copy(self, source: Source, result: ImageResult) -> None:
        from .annotate import UnreadableImageError, write_copy

        assert self._copies is not None
        try:
            write_copy(source.image, result, self._copies, source.relative, self._replace_copies)
        except (UnreadableImageError, OSError, ValueError) as error:
            if not result.error:  # where there is one, it tells why
                self.problems += 1
                print(f"{source.name}: no annotated copy: {error}", file=sys.stderr)


@contextlib.contextmanager
def open_output(options: argparse.Namespace) -> Iterator[Output]:
    """The output that the options of `classify` ask for; raises UsageError where they do not fit what is there."""
    _check(options)
    kind = FORMATS[options.format]
    with contextlib.ExitStack() as stack:
        report = None if options.report is None else stack.enter_context(_open_report(options.report))
        done = set()
        for name, result in _keep_finished(options.output, kind) if options.resume else ():
            done.add(name)
            if report is not None:
                report.add(name, Path(name), result)
        file = sys.stdout if options.output is None else stack.enter_context(_open(options.output, kind, "a"))
        yield Output(kind(file), done, report, options.annotate, replace_copies=options.resume)


def _check(options: argparse.Namespace) -> None:
    if options.resume and (options.output is None or options.format == "table"):
        raise UsageError("--resume: expected an --output FILE with --format jsonl or csv, to go on from")
    if options.output is not None and options.output.exists() and not options.resume:
        raise UsageError(f"--output: expected no file there, got {options.output}; --resume goes on with it")
    if options.resume and options.output.exists() and not options.output.is_file():
        raise UsageError(f"--resume: expected a file as --output, got {options.output}")
    if options.annotate or options.report:
        try:
            import PIL  # noqa: F401
        except ImportError as error:
            raise UsageError("--annotate and --report: expected the package Pillow: pip install Pillow") from error


def _open(path: Path, kind: Any, mode: str) -> IO[str]:
    try:
        return path.open(mode, encoding="utf-8", errors=kind.encoding_errors, newline="")
    except OSError as error:
        raise UsageError(f"--output: expected a file that can be written, got {path}: {error.strerror}") from error


def _open_report(path: Path) -> Any:
    from .report import ReportWriter

    if not path.parent.is_dir():
        raise UsageError(f"--report: expected a file in a folder that exists, got {path}")
    return ReportWriter(path)


def _read(path: Path, kind: Any) -> Iterator[tuple[str, ImageResult]]:
    with _open(path, kind, "r") as file:
        try:
            yield from kind.read(file)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"--resume: expected lines that --format {kind.name} wrote, got others in {path}"
            ) from error


def _keep_finished(path: Path, kind: Any) -> Iterator[tuple[str, ImageResult]]:
    """Leave in the file at `path` the images that are done with, and return them.

    What is not: the last line where it was cut short, and images that failed for the server's sake.
    """
    if not path.exists():
        return
    with written_beside(path.resolve()) as beside, _open(beside, kind, "w") as file:
        kept = kind(file)
        for name, result in _read(path, kind):
            if result.error is None or result.error.code not in SERVICE_CODES:
                kept.add(name, result)
                yield name, result
