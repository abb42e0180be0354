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


def read(data: bytes) -> Header:
    """Read the first directory, and hand on the file with one that has only what is needed."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    entries = _directory(data, order, big)
    width, height = (_integers(data, order, entries, tag, 1)[0] for tag in (Tag.WIDTH, Tag.HEIGHT))
    compression = _integers(data, order, entries, Tag.COMPRESSION, 1, default=UNCOMPRESSED)[0]
    if compression not in COMPRESSIONS:
        raise unsupported("TIFF", "LZW, Deflate, JPEG, CCITT, PackBits or no compression", f"compression {compression}")
    sample_bits = _integers(data, order, entries, Tag.SAMPLE_BITS, MAX_SAMPLES, default=1)[0]
    planes_apart = _integers(data, order, entries, Tag.PLANES, 1, default=1)[0] == 2
    if planes_apart and sample_bits > 8 and compression == UNCOMPRESSED:  # Pillow takes each byte for a sample
        raise unsupported("TIFF", "8 bits a sample in uncompressed planes", f"{sample_bits} bits")
    covered_width, covered_height = width, height
    if Tag.TILES in entries:
        tile_width, tile_height = (
            _integers(data, order, entries, tag, 1)[0] for tag in (Tag.TILE_WIDTH, Tag.TILE_HEIGHT)
        )
        covered_width, covered_height = max(width, tile_width), max(height, tile_height)
    _check_ends(data, order, entries, compression)
    xmp = entries.get(Tag.XMP)
    return Header(
        format="TIFF",
        width=width,
        height=height,
        orientation=_orientation(data, order, entries, xmp),
        sample_bits=max(sample_bits, 8),
        cost=BYTES_PER_PIXEL / BUDGET_BYTES_PER_PIXEL * max(covered_width * covered_height, 1) / max(width * height, 1),
        data=_with_directory(data, order, big, [entry.raw for tag, entry in entries.items() if tag in KEPT]),
        decode=by_pillow,
    )


def _directory(data: bytes, order: str, big: bool) -> dict[int, Entry]:
    """Read the first directory: tag to where its value stands."""
    offset_code, count_code, entry_bytes = ("Q", "Q", 20) if big else ("I", "H", 12)
    inline_bytes = 8 if big else 4
    count_bytes = struct.calcsize(count_code)
    if len(data) < 16:
        raise truncated("TIFF", "its first directory", data)
    (start,) = struct.unpack_from(order + offset_code, data, 8 if big else 4)
    if start + count_bytes > len(data):
        raise truncated("TIFF", f"its first directory at byte {start}", data)
    (count,) = struct.unpack_from(order + count_code, data, start)
    if not 1 <= count <= MAX_ENTRIES:  # none: zeros after a cut
        raise corrupt("TIFF", f"1 to {MAX_ENTRIES} entries in its first directory", count)
    first = start + count_bytes
    if first + entry_bytes * count > len(data):
        raise truncated("TIFF", f"the end of its first directory at byte {first + entry_bytes * count}", data)
    entries = {}
    for at in range(first, first + entry_bytes * count, entry_bytes):
        tag, kind, values = struct.unpack_from(f"{order}HH{offset_code}", data, at)
        value_at = at + entry_bytes - inline_bytes
        if TYPE_BYTES.get(kind, 1) * values > inline_bytes:
            (value_at,) = struct.unpack_from(order + offset_code, data, value_at)
        entries[tag] = Entry(kind, values, value_at, data[at : at + entry_bytes])
    _check_directory(data, entries, first + entry_bytes * count)
    return entries


def _check_directory(data: bytes, entries: dict[int, Entry], directory_end: int) -> None:
    """Raise InvalidImageError, truncated, where the directory or a value of it does not end within the file."""
    ends = {tag: entry.at + TYPE_BYTES.get(entry.kind, 1) * entry.count for tag, entry in entries.items()}
    end = max([directory_end, *(ends[tag] for tag in KEPT & entries.keys())])
    if end > len(data):
        raise truncated("TIFF", f"the end of its directory's values at byte {end}", data)
    # What is not of zeros to its end must end before a batch's zeros do. Of the colours, first all reds, then all
    # greens, then all blues, many of the last may be unused.
    if Tag.COLOR_MAP in entries:
        ends[Tag.COLOR_MAP] -= (ends[Tag.COLOR_MAP] - entries[Tag.COLOR_MAP].at) // 3
    end = max([directory_end, *(ends[tag] for tag in KEPT & entries.keys())])
    if end > len(data.rstrip(b"\0")) + MAX_END_ZEROS:
        raise truncated("TIFF", f"the end of its directory's values at byte {end}", data.rstrip(b"\0"))


def _integers(
    data: bytes, order: str, entries: dict[int, Entry], tag: int, most: int, default: int | None = None
) -> tuple[int, ...]:
    """Read the integers of a tag, `most` of them at most."""
    entry = entries.get(tag)
    if entry is None:
        if default is None:
            raise corrupt("TIFF", f"tag {tag}", "none")
        return (default,)
    if entry.kind not in INTEGERS or not 1 <= entry.count <= most:
        raise corrupt("TIFF", f"1 to {most} integers in tag {tag}", f"{entry.count} of type {entry.kind}")
    if entry.at + entry.count * TYPE_BYTES[entry.kind] > len(data):
        raise truncated("TIFF", f"the value of tag {tag} at byte {entry.at}", data)
    return struct.unpack_from(f"{order}{entry.count}{INTEGERS[entry.kind]}", data, entry.at)


def _check_ends(data: bytes, order: str, entries: dict[int, Entry], compression: int) -> None:
    """Raise InvalidImageError, truncated, where a strip or tile does not end within the file."""
    starts, sizes = (Tag.TILES, Tag.TILE_BYTES) if Tag.TILES in entries else (Tag.STRIPS, Tag.STRIP_BYTES)
    if sizes not in entries:  # rare, and allowed where there is one strip: it ends with the file
        return
    ends = [
        start + size
        for start, size in zip(
            _integers(data, order, entries, starts, MAX_STRIPS),
            _integers(data, order, entries, sizes, MAX_STRIPS),
            strict=False,
        )
    ]
    zeros = MAX_STRIP_END_ZEROS.get(compression, 3)
    end_of_data = len(data) if zeros is None else min(len(data), len(data.rstrip(b"\0")) + zeros)
    if max(ends) > end_of_data:
        raise truncated("TIFF", f"the end of its last strip or tile at byte {max(ends)}", data)


def _orientation(data: bytes, order: str, entries: dict[int, Entry], xmp: Entry | None) -> int:
    if Tag.ORIENTATION in entries:
        value = _integers(data, order, entries, Tag.ORIENTATION, 1)[0]
        return value if 1 <= value <= 8 else 1
    return read_orientation(xmp=data[xmp.at : xmp.at + min(xmp.count, MAX_XMP_BYTES)] if xmp else b"")


def _with_directory(data: bytes, order: str, big: bool, entries: list[bytes]) -> bytes:
    """Append a directory of these entries, and point the file's header to it."""
    offset_code, count_code = ("Q", "Q") if big else ("I", "H")
    pointer_at = 8 if big else 4
    data += bytes(len(data) % 2)  # a directory starts at an even byte
    pointer = struct.pack(order + offset_code, len(data))
    directory = struct.pack(order + count_code, len(entries)) + b"".join(entries) + bytes(len(pointer))
    return data[:pointer_at] + pointer + data[pointer_at + len(pointer) :] + directory
