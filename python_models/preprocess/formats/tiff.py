"""TIFF: directories of tagged values, of which the first is read, and strips or tiles. Source: TIFF 6.0; BigTIFF."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from ..orientation import read_orientation
from .codecs import by_pillow
from .header import BUDGET_BYTES_PER_PIXEL, Header, corrupt, truncated, unsupported

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


class Tag(IntEnum):
    """Those that the pixels depend on, and how they are turned. Source: TIFF 6.0, part 2 and 3."""

    WIDTH = 256
    HEIGHT = 257
    SAMPLE_BITS = 258
    COMPRESSION = 259
    PHOTOMETRIC_INTERPRETATION = 262
    FILL_ORDER = 266
    STRIPS = 273
    ORIENTATION = 274
    SAMPLES = 277
    ROWS_PER_STRIP = 278
    STRIP_BYTES = 279
    PLANES = 284
    T4_OPTIONS = 292
    T6_OPTIONS = 293
    PREDICTOR = 317
    COLOR_MAP = 320
    TILE_WIDTH = 322
    TILE_HEIGHT = 323
    TILES = 324
    TILE_BYTES = 325
    EXTRA_SAMPLES = 338
    SAMPLE_FORMAT = 339
    JPEG_TABLES = 347
    YCBCR_COEFFICIENTS = 529
    YCBCR_SUBSAMPLING = 530
    REFERENCE_BLACK_WHITE = 532
    XMP = 700


# Handed to Pillow: it copies every value that it is handed, and a file may name the same megabytes as the value of each
# of thousands of tags.
KEPT = set(Tag) - {Tag.ORIENTATION, Tag.XMP}
INTEGERS = {1: "B", 3: "H", 4: "I", 16: "Q"}
TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
UNCOMPRESSED, PACKBITS = 1, 32773
# CCITT, LZW, JPEG, Deflate. Not LZMA, Zstandard and WebP, which may take any memory, nor JPEG of before 1995.
COMPRESSIONS = {UNCOMPRESSED, 2, 3, 4, 5, 7, 8, 32946, PACKBITS}
BYTES_PER_PIXEL = 10  # while it is decoded: a strip may be the whole picture, beside the picture itself
MAX_SAMPLES = 16  # of a pixel
MAX_ENTRIES = 1000
MAX_STRIPS = 100_000  # strips or tiles
MAX_XMP_BYTES = 1 << 20
MAX_END_ZEROS = 32  # of a directory: the last value, and the pointer to the next directory
MAX_STRIP_END_ZEROS = {UNCOMPRESSED: None, PACKBITS: 130}  # else 3; PackBits copies up to 128 samples as they are


@dataclass(frozen=True)
class Entry:
    """A tag's value: where it stands in the file, and its own 12 or 20 bytes of the directory."""

    kind: int
    count: int
    at: int
    raw: bytes

    @property
    def end(self) -> int:
        return self.at + TYPE_BYTES.get(self.kind, 1) * self.count


@dataclass(frozen=True)
class Directory:
    """The first directory of a file, its tags with where their values stand."""

    data: bytes  # the file
    order: str  # of bytes, in the code of struct
    is_big: bool  # BigTIFF, with offsets of 8 bytes
    end: int
    entries: dict[int, Entry]

    def integers(self, tag: int, most: int, default: int | None = None) -> tuple[int, ...]:
        """Read the integers of a tag, 1 to `most` of them."""
        entry = self.entries.get(tag)
        if entry is None:
            if default is None:
                raise corrupt("TIFF", f"tag {tag}", "none")
            return (default,)
        if entry.kind not in INTEGERS or not 1 <= entry.count <= most:
            raise corrupt("TIFF", f"1 to {most} integers in tag {tag}", f"{entry.count} of type {entry.kind}")
        if entry.end > len(self.data):
            raise truncated("TIFF", f"the value of tag {tag} at byte {entry.at}", self.data)
        return struct.unpack_from(f"{self.order}{entry.count}{INTEGERS[entry.kind]}", self.data, entry.at)

    def integer(self, tag: int, default: int | None = None) -> int:
        return self.integers(tag, 1, default)[0]


def read(data: bytes) -> Header:
    """Read the first directory, and hand on the file with one that has only what is needed."""
    directory = _read_directory(data)
    _check_values_end(directory)
    compression = directory.integer(Tag.COMPRESSION, default=UNCOMPRESSED)
    if compression not in COMPRESSIONS:
        raise unsupported("TIFF", "LZW, Deflate, JPEG, CCITT, PackBits or no compression", f"compression {compression}")
    sample_bits = directory.integers(Tag.SAMPLE_BITS, MAX_SAMPLES, default=1)[0]
    if compression == UNCOMPRESSED and sample_bits > 8 and directory.integer(Tag.PLANES, default=1) == 2:
        raise unsupported("TIFF", "8 bits a sample in uncompressed planes", f"{sample_bits} bits")  # Pillow takes bytes
    _check_pixels_end(directory, compression)
    width, height = directory.integer(Tag.WIDTH), directory.integer(Tag.HEIGHT)
    return Header(
        format="TIFF",
        width=width,
        height=height,
        orientation=_orientation(directory),
        sample_bits=max(sample_bits, 8),
        cost=BYTES_PER_PIXEL / BUDGET_BYTES_PER_PIXEL * _covered_share(directory, width, height),
        data=_with_directory(directory, KEPT),
        decode=by_pillow,
    )


def _read_directory(data: bytes) -> Directory:
    order, is_big = "<" if data[:2] == b"II" else ">", data[2:4] in (b"+\0", b"\0+")
    offset_code, count_code, entry_bytes, inline_bytes = ("Q", "Q", 20, 8) if is_big else ("I", "H", 12, 4)
    count_bytes = struct.calcsize(count_code)
    if len(data) < 16:
        raise truncated("TIFF", "its first directory", data)
    (start,) = struct.unpack_from(order + offset_code, data, inline_bytes)
    if start + count_bytes > len(data):
        raise truncated("TIFF", f"its first directory at byte {start}", data)
    (count,) = struct.unpack_from(order + count_code, data, start)
    if not 1 <= count <= MAX_ENTRIES:  # none: zeros after a cut
        raise corrupt("TIFF", f"1 to {MAX_ENTRIES} entries in its first directory", count)
    first, end = start + count_bytes, start + count_bytes + entry_bytes * count
    if end > len(data):
        raise truncated("TIFF", f"the end of its first directory at byte {end}", data)
    entries = {}
    for at in range(first, end, entry_bytes):
        tag, kind, values = struct.unpack_from(f"{order}HH{offset_code}", data, at)
        value_at = at + entry_bytes - inline_bytes
        if TYPE_BYTES.get(kind, 1) * values > inline_bytes:
            (value_at,) = struct.unpack_from(order + offset_code, data, value_at)
        entries[tag] = Entry(kind, values, value_at, data[at : at + entry_bytes])
    return Directory(data, order, is_big, end, entries)


def _check_values_end(directory: Directory) -> None:
    """Raise InvalidImageError, truncated, where the directory or a value of it does not end within the file."""
    data = directory.data
    ends = {tag: entry.end for tag, entry in directory.entries.items() if tag in KEPT}
    end = max(directory.end, *ends.values(), 0)
    if end > len(data):
        raise truncated("TIFF", f"the end of its directory's values at byte {end}", data)
    # They must also end before a batch's zeros begin. Of the colours, first all reds, then all greens, then all blues,
    # many of the last may be zeros.
    if Tag.COLOR_MAP in ends:
        ends[Tag.COLOR_MAP] -= (ends[Tag.COLOR_MAP] - directory.entries[Tag.COLOR_MAP].at) // 3
    end = max(directory.end, *ends.values(), 0)
    if end > len(data.rstrip(b"\0")) + MAX_END_ZEROS:
        raise truncated("TIFF", f"the end of its directory's values at byte {end}", data.rstrip(b"\0"))


def _check_pixels_end(directory: Directory, compression: int) -> None:
    """Raise InvalidImageError, truncated, where a strip or tile does not end within the file."""
    tiled = Tag.TILES in directory.entries
    starts, sizes = (Tag.TILES, Tag.TILE_BYTES) if tiled else (Tag.STRIPS, Tag.STRIP_BYTES)
    if sizes not in directory.entries:  # rare, and allowed where there is one strip: it ends with the file
        return
    values = (directory.integers(tag, MAX_STRIPS) for tag in (starts, sizes))
    end = max(start + size for start, size in zip(*values, strict=False))
    zeros = MAX_STRIP_END_ZEROS.get(compression, 3)
    data = directory.data
    if end > (len(data) if zeros is None else min(len(data), len(data.rstrip(b"\0")) + zeros)):
        raise truncated("TIFF", f"the end of its last strip or tile at byte {end}", data)


def _covered_share(directory: Directory, width: int, height: int) -> float:
    """How many times the picture a tile may be: it is decoded as a whole."""
    if Tag.TILES not in directory.entries or width * height == 0:
        return 1
    tile_width, tile_height = directory.integer(Tag.TILE_WIDTH), directory.integer(Tag.TILE_HEIGHT)
    return max(width, tile_width) * max(height, tile_height) / (width * height)


def _orientation(directory: Directory) -> int:
    if Tag.ORIENTATION in directory.entries:
        value = directory.integer(Tag.ORIENTATION)
        return value if 1 <= value <= 8 else 1
    xmp = directory.entries.get(Tag.XMP)
    return read_orientation(xmp=directory.data[xmp.at : min(xmp.end, xmp.at + MAX_XMP_BYTES)] if xmp else b"")


def _with_directory(directory: Directory, kept: set[Tag]) -> bytes:
    """Append a directory of the `kept` entries alone, and point the file's header to it."""
    offset_code, count_code, pointer_at = ("Q", "Q", 8) if directory.is_big else ("I", "H", 4)
    data = directory.data + bytes(len(directory.data) % 2)  # a directory starts at an even byte
    entries = [entry.raw for tag, entry in directory.entries.items() if tag in kept]
    pointer = struct.pack(directory.order + offset_code, len(data))
    appended = struct.pack(directory.order + count_code, len(entries)) + b"".join(entries) + bytes(len(pointer))
    return data[:pointer_at] + pointer + data[pointer_at + len(pointer) :] + appended
