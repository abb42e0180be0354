"""The files of an export, and the folders that they are written to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ExportError

EXPORTED_FILES = ("model.onnx", "labels.txt", "manifest.json")


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Make `folder`, and turn the system's refusal to write there into an ExportError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ExportError(f"{folder}: expected a folder that can be written to, got: {error.strerror}") from error
