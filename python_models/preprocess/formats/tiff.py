"""TIFF: directories of tagged values, of which the first is read, and strips or tiles. Source: TIFF 6.0; BigTIFF."""

import struct
from collections.abc import Collection
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


MAX_STRIPS = 100_000  # strips or tiles
# Handed to Pillow, and how many values they may have: it copies them, and a file may name the same megabytes as the
# value of each tag.
STRIP_TAGS = {Tag.STRIPS: MAX_STRIPS, Tag.STRIP_BYTES: MAX_STRIPS, Tag.ROWS_PER_STRIP: 1}
TILE_TAGS = {Tag.TILES: MAX_STRIPS, Tag.TILE_BYTES: MAX_STRIPS, Tag.TILE_WIDTH: 1, Tag.TILE_HEIGHT: 1}
MAX_SAMPLES = 16  # of a pixel
OTHER_TAGS = {tag: 1 for tag in Tag if tag not in {*STRIP_TAGS, *TILE_TAGS, Tag.ORIENTATION, Tag.XMP}} | {
    **dict.fromkeys((Tag.SAMPLE_BITS, Tag.EXTRA_SAMPLES, Tag.SAMPLE_FORMAT, Tag.REFERENCE_BLACK_WHITE), MAX_SAMPLES),
    **dict.fromkeys((Tag.YCBCR_COEFFICIENTS, Tag.YCBCR_SUBSAMPLING), 3),
    Tag.COLOR_MAP: 3 << 16,
    Tag.JPEG_TABLES: 1 << 16,
}
INTEGERS = {1: "B", 3: "H", 4: "I", 16: "Q"}
TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
UNCOMPRESSED, JPEG, PACKBITS = 1, 7, 32773
JPEG_SCAN = b"\xff\xda"
# CCITT, LZW, JPEG, Deflate. Not LZMA, Zstandard and WebP, which may take any memory, nor JPEG of before 1995.
COMPRESSIONS = {UNCOMPRESSED, 2, 3, 4, 5, 7, 8, 32946, PACKBITS}
CCITT = {2, 3, 4}
CCITT_BYTES_PER_COLUMN = 16  # which libtiff keeps of a row's changes
PICTURE_BYTES_PER_PIXEL, LEAST_BYTES_PER_PIXEL = (
    5.5,
    8,
)  # while it is decoded, without the strip, which may be all of it
MAX_ENTRIES = 1000
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
    kept = {**OTHER_TAGS, **(TILE_TAGS if Tag.TILES in directory.entries else STRIP_TAGS)}
    _check_values_end(directory, kept)
    compression = directory.integer(Tag.COMPRESSION, default=UNCOMPRESSED)
    if compression not in COMPRESSIONS:
        raise unsupported("TIFF", "LZW, Deflate, JPEG, CCITT, PackBits or no compression", f"compression {compression}")
    sample_bits = directory.integers(Tag.SAMPLE_BITS, MAX_SAMPLES, default=1)[0]
    if compression == UNCOMPRESSED and sample_bits > 8 and directory.integer(Tag.PLANES, default=1) == 2:
        raise unsupported("TIFF", "8 bits a sample in uncompressed planes", f"{sample_bits} bits")  # Pillow takes bytes
    tiled = Tag.TILES in directory.entries
    starts = directory.integers(Tag.TILES if tiled else Tag.STRIPS, MAX_STRIPS)
    _check_pixels_end(directory, compression, starts, Tag.TILE_BYTES if tiled else Tag.STRIP_BYTES)
    width, height = directory.integer(Tag.WIDTH), directory.integer(Tag.HEIGHT)
    return Header(
        format="TIFF",
        width=width,
        height=height,
        orientation=_orientation(directory),
        sample_bits=max(sample_bits, 8),
        scans=data.count(JPEG_SCAN) if compression == JPEG else 1,
        coded_pixels=width * height // len(starts),  # a scan goes over one of them
        cost=_bytes_per_pixel(directory, compression, sample_bits, width, height) / BUDGET_BYTES_PER_PIXEL,
        data=_with_directory(directory, set(kept)),
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


def _check_values_end(directory: Directory, kept: dict[Tag, int]) -> None:
    """Raise InvalidImageError where the directory or a value of it is too long, or does not end within the file."""
    data = directory.data
    for tag, most in kept.items():
        if tag in directory.entries and directory.entries[tag].count > most:
            raise corrupt("TIFF", f"at most {most} values of tag {tag}", directory.entries[tag].count)
    ends = {tag: directory.entries[tag].end for tag in kept if tag in directory.entries}
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


def _check_pixels_end(directory: Directory, compression: int, starts: tuple[int, ...], sizes_tag: Tag) -> None:
    """Raise InvalidImageError where a strip or tile does not end within the file, or two share its bytes."""
    if sizes_tag not in directory.entries and len(starts) == 1:  # rare, and allowed: it ends with the file
        return
    sizes, data = directory.integers(sizes_tag, MAX_STRIPS), directory.data
    end = max(start + size for start, size in zip(starts, sizes, strict=False))
    zeros = MAX_STRIP_END_ZEROS.get(compression, 3)
    if end > (len(data) if zeros is None else min(len(data), len(data.rstrip(b"\0")) + zeros)):
        raise truncated("TIFF", f"the end of its last strip or tile at byte {end}", data)
    if sum(sizes) > len(data):
        raise corrupt("TIFF", f"strips or tiles of at most its own {len(data)} bytes", f"{sum(sizes)} bytes of them")


def _bytes_per_pixel(directory: Directory, compression: int, sample_bits: int, width: int, height: int) -> float:
    """What decoding takes at its peak: the picture, and a strip or tile, which may be as large or larger."""
    pixels = max(width * height, 1)
    strip = directory.integer(Tag.SAMPLES, default=1) * max(sample_bits, 8) / 8
    result = max(PICTURE_BYTES_PER_PIXEL + strip, LEAST_BYTES_PER_PIXEL)
    if Tag.TILES in directory.entries:
        tile_width, tile_height = directory.integer(Tag.TILE_WIDTH), directory.integer(Tag.TILE_HEIGHT)
        result *= max(width, tile_width) * max(height, tile_height) / pixels
    if compression in CCITT:
        result += CCITT_BYTES_PER_COLUMN * width / pixels
    return result


def _orientation(directory: Directory) -> int:
    if Tag.ORIENTATION in directory.entries:
        value = directory.integer(Tag.ORIENTATION)
        return value if 1 <= value <= 8 else 1
    xmp = directory.entries.get(Tag.XMP)
    return read_orientation(xmp=directory.data[xmp.at : min(xmp.end, xmp.at + MAX_XMP_BYTES)] if xmp else b"")


def _with_directory(directory: Directory, kept: Collection[int]) -> bytes:
    """Append a directory of the `kept` entries alone, and point the file's header to it."""
    offset_code, count_code, pointer_at = ("Q", "Q", 8) if directory.is_big else ("I", "H", 4)
    data = directory.data + bytes(len(directory.data) % 2)  # a directory starts at an even byte
    entries = [entry.raw for tag, entry in directory.entries.items() if tag in kept]
    pointer = struct.pack(directory.order + offset_code, len(data))
    appended = struct.pack(directory.order + count_code, len(entries)) + b"".join(entries) + bytes(len(pointer))
    return data[:pointer_at] + pointer + data[pointer_at + len(pointer) :] + appended
