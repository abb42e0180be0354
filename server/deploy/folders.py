"""Folders that are in place whole or not at all, also where the power fails."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def install(target: Path, staging: Path, files: Mapping[str, bytes | Path], empty_folders: Iterable[str] = ()) -> None:
    """Make the folder `target` with copies of `files`, their paths in it to their content or where that is.

    Written in a folder of `staging`, of the same file system, where Triton does not look for it; then renamed.
    """
    with tempfile.TemporaryDirectory(dir=staging, prefix=".new-") as staged:
        new = Path(staged) / target.name
        for folder in empty_folders:
            (new / folder).mkdir(parents=True)
        for path, source in files.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, bytes):
                (new / path).write_bytes(source)
            else:
                shutil.copyfile(source, new / path)
        for written in (new, *new.rglob("*")):
            written.chmod(0o755 if written.is_dir() else 0o644)  # Triton may run as another user
            sync(written)
        move(new, target)


def move(source: Path, target: Path) -> None:
    """Rename within one file system, for good."""
    source.rename(target)
    for parent in {source.parent, target.parent}:
        sync(parent)


def remove(folder: Path, staging: Path) -> None:
    """Remove a folder that Triton could see, at one blow; does nothing where it is absent."""
    if folder.exists():
        with tempfile.TemporaryDirectory(dir=staging, prefix=".old-") as name:
            move(folder, Path(name) / folder.name)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
