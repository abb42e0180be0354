"""The images that a person names: files, folders, globs, file:// URLs, standard input."""

import functools
import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePath
from urllib.parse import urlsplit
from urllib.request import url2pathname

from .options import UsageError

SUFFIXES = frozenset(
    f".{name}"
    for name in [
        "jpg",
        "jpeg",
        "jpe",
        "jfif",
        "mpo",
        "png",
        "apng",
        "webp",
        "gif",
        "tif",
        "tiff",
        "bmp",
        "dib",
        "avif",
        "pbm",
        "pgm",
        "ppm",
        "pnm",
    ]
)


@dataclass(frozen=True)
class Source:
    """One image: its name in the results, what is sent, and where a copy of it goes below another folder.

    That is its path below the folder that was named, where only that was; else its path as it was named.
    """

    name: str
    image: bytes | Path
    relative: PurePath


class Sources:
    """Every image that `arguments` name, in order, found anew each time that it is gone through.

    A folder gives all files in it and below whose names end as image files do, sorted in each folder; `left_out` counts
    the others, pipes, devices, and links to folders, which might lead in circles. A file that is named itself may be
    called anything. What several arguments, or folders that a glob finds, have in common is given once. Going through
    it raises UsageError where a URL is no file's, a glob finds nothing, or a folder cannot be read.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments, self.left_out = arguments, 0

    def __iter__(self) -> Iterator[Source]:
        self.left_out = 0
        if len(self._arguments) == 1 and (folder := _path(self._arguments[0])).is_dir():
            for source in self._in_folder(folder):
                yield replace(source, relative=PurePath(source.name).relative_to(folder))
            return
        names = set()
        for source in chain.from_iterable(map(self._named, self._arguments)):
            if source.name not in names:
                names.add(source.name)
                yield source

    def _named(self, argument: str) -> Iterator[Source]:
        if argument == "-":
            yield Source("-", _standard_input(), PurePath("stdin"))
        else:
            yield from self._find(_path(argument))

    def _find(self, path: Path) -> Iterator[Source]:
        if path.is_dir():
            yield from self._in_folder(path)
        elif glob.has_magic(str(path)) and not os.path.lexists(path):
            found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  # Path.glob takes no absolute pattern
            if not found:
                raise UsageError(f"{path}: expected a pattern that finds files, it finds none")
            for one in map(Path, found):
                yield from self._in_folder(one) if one.is_dir() else [_file(one)]
        else:
            yield _file(path)

    def _in_folder(self, folder: Path) -> Iterator[Source]:
        for parent, folders, files in os.walk(folder, onerror=_unreadable):
            folders.sort()
            self.left_out += sum(Path(parent, name).is_symlink() for name in folders)
            for path in map(Path(parent).joinpath, sorted(files)):
                if path.suffix.lower() in SUFFIXES and _may_be_read(path):
                    yield _file(path)
                else:
                    self.left_out += 1


def _may_be_read(path: Path) -> bool:
    """Not so a pipe or a device, which may never end; what is absent is told of when it is read."""
    return path.is_file() or not path.exists()


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename}: expected a folder that can be read, got: {error.strerror}") from error


@functools.cache
def _standard_input() -> bytes:
    return sys.stdin.buffer.read()


def _path(argument: str) -> Path:
    if "://" not in argument:
        return Path(argument)
    parts = urlsplit(argument)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise UsageError(f"{argument}: expected a file:// URL of this machine, a path, or - for standard input")
    return Path(url2pathname(parts.path))


def _file(path: Path) -> Source:
    return Source(str(path), path, PurePath(*(part for part in path.parts if part not in (path.anchor, ".."))))
