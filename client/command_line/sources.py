"""The images that a person names: files, folders, globs, file:// URLs, standard input."""

import functools
import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..images import Image
from .options import UsageError

SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .mpo .png .apng .webp .gif .tif .tiff .bmp .dib .avif .pbm .pgm .ppm .pnm".split()
)


@dataclass(frozen=True)
class Source:
    """One image: its name in the results, what is sent, and where a copy of it goes below another folder.

    That is its path below the folder that was named, where only that was; else its path as it was named.
    """

    name: str
    image: Image
    relative: PurePath


def find_sources(arguments: Sequence[str]) -> Iterator[Source]:
    """Every image that `arguments` name, in order, found as they are asked for.

    A folder gives all files in it and below whose names end as image files do, sorted in each folder; a file that is
    named itself may be called anything. Raises UsageError where a URL is no file's, or a glob finds nothing.
    """
    if len(arguments) == 1 and os.path.isdir(folder := _path(arguments[0])):
        for source in _in_folder(folder):
            yield replace(source, relative=PurePath(os.path.relpath(source.name, folder)))
        return
    for argument in arguments:
        if argument == "-":
            yield Source("-", _standard_input(), PurePath("stdin"))
        else:
            yield from _find(_path(argument))


def _find(path: str) -> Iterator[Source]:
    if os.path.isdir(path):
        yield from _in_folder(path)
    elif glob.has_magic(path) and not os.path.lexists(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise UsageError(f"{path}: expected a pattern that finds files, it finds none")
        for one in found:
            yield from _in_folder(one) if os.path.isdir(one) else [_file(one)]
    else:
        yield _file(path)


@functools.cache
def _standard_input() -> bytes:
    return sys.stdin.buffer.read()


def _file(path: str) -> Source:
    inside = [part for part in PurePath(path).parts if part not in (os.sep, "..")]
    return Source(path, path, PurePath(*inside))


def _in_folder(folder: str) -> Iterator[Source]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if Path(name).suffix.lower() in SUFFIXES:
                yield _file(os.path.join(parent, name))


def _path(argument: str) -> str:
    if "://" not in argument:
        return argument
    parts = urlsplit(argument)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise UsageError(f"{argument}: expected a file:// URL of this machine, a path, or - for standard input")
    return url2pathname(parts.path)
