"""Files that are written whole or not at all."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_beside(target: Path) -> Iterator[Path]:
    """Give the path of a file to write; it becomes `target` if all goes well, else it is removed."""
    beside = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        yield beside
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
