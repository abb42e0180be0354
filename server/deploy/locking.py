"""One change of a repository at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import ServerError


@contextlib.contextmanager
def locked(repository: Path) -> Iterator[None]:
    """Hold the lock on the folder itself, which leaves no file behind and ends with this process.

    Raises ServerError where another holds it.
    """
    descriptor = os.open(repository, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ServerError(
                f"{repository}: expected nobody else who changes its versions, got another deploy or rollback: "
                "wait for its end"
            ) from error
        yield
    finally:
        os.close(descriptor)
