"""AVIF: boxes of length, name, content; items, of which the pictures are AV1. Sources: ISO/IEC 14496-12; AV1, 5.5.

libavif reads the file, by way of Pillow. Here are found only what it would not tell before it decodes: whether all of
the pictures is there, and how large they say they are in their own data, which libavif believes.
"""

import io
import itertools
import struct
from collections.abc import Iterator

from PIL import Image

from ..errors import InvalidImageError
from .codecs import by_pillow
from .header import Header, corrupt, truncated, unsupported

MAX_BOXES = 1000
MAX_ITEMS = 256  # and pieces of items; a photograph of 50 megapixels has 60
MAX_TABLE_BYTES = 1 << 14  # of a box that lists items: libavif searches all of them for each of its entries
MAX_UNITS = 1000  # of AV1, in one item
TABLES = (b"iinf", b"iloc", b"iref")
KEPT_ITEMS = {b"av01", b"grid", b"iden", b"iovl", b"tmap"}  # pictures; EXIF and XMP would be copied at the file's word
PICTURE = b"av01"
LEAST_COST, COST_OF_CODED_BYTE = 2, 2  # the memory of colours in full; the time, above one for the pixel itself
SEQUENCE_HEADER, FRAME_HEADER, FRAME = 1, 3, 6  # units

Span = tuple[int, int]  # start and end in the file


class _Bits:
    """The bits of AV1, the highest first."""

    def __init__(self, data: bytes) -> None:
        self.value, self.left = int.from_bytes(data, "big"), 8 * len(data)

    def __call__(self, count: int) -> int:
        self.left -= count
        if self.left < 0:
            raise corrupt("AVIF", "whole AV1 headers", "one that ends too soon")
        return self.value >> self.left & (1 << count) - 1


def read(data: bytes) -> Header:
    """Walk the boxes, then let libavif read the file, without decoding it."""
    boxes = list(_boxes(data, 0, len(data)))
    _, brands_start, brands_end = boxes[0]
    brands = data[brands_start : min(brands_end, brands_start + MAX_TABLE_BYTES)]
    if b"avif" not in (brands[at : at + 4] for at in range(0, len(brands), 4)):
        raise unsupported("HEIF", "the brand avif: a still picture in AV1", f"{brands[:4].decode('latin-1')!r}")
    places = {name: (start, end) for name, start, end in boxes}
    if b"meta" not in places:
        raise unsupported("AVIF", "a still picture, in a box `meta`", "none")
    start, end = places[b"meta"]
    meta = {name: (start, end) for name, start, end in _boxes(data, start + 4, end)}
    try:
        _check_tables(data, meta)
        types = _item_types(data, *meta[b"iinf"])
        items = _item_extents(data, meta)
    except (KeyError, IndexError, struct.error) as error:
        raise corrupt("AVIF", "whole boxes `iinf`, `iloc` and `iprp`", "others") from error
    pixels, coded_bytes = _decoded_pixels(data, types, items)
    whole = data[: boxes[-1][2]]
    return _header(_only_stills(whole, (brands_start, brands_end), boxes, types), pixels, coded_bytes)


def _decoded_pixels(data: bytes, types: dict[int, tuple[bytes, int]], items: dict[int, list[Span]]) -> tuple[int, int]:
    """Return how many pixels the pictures of the file say that they have, and from how many bytes.

    Raises InvalidImageError where one does not end within the file.
    """
    end_of_data = len(data.rstrip(b"\0"))
    pictures = [items[number] for number, (kind, _) in types.items() if kind == PICTURE and number in items]
    end = max((end for extents in pictures for _, end in extents), default=0)
    if end > end_of_data:  # AV1 data ends in a bit that is set
        raise truncated("AVIF", f"the end of a picture at byte {end}", data[:end_of_data])
    coded_bytes = sum(end - start for extents in pictures for start, end in extents)
    if coded_bytes > len(data):
        raise corrupt("AVIF", f"pictures of at most its own {len(data)} bytes", f"{coded_bytes} bytes of them")
    return sum(_announced_pixels(b"".join(data[a:b] for a, b in extents)) for extents in pictures), coded_bytes


def _header(data: bytes, pixels: int, coded_bytes: int) -> Header:
    try:
        with Image.open(io.BytesIO(data), formats=["AVIF"]) as image:
            (width, height), orientation = image.size, image.getexif().get(0x0112, 1)
    except Exception as error:  # of many kinds, as when it decodes
        raise InvalidImageError(
            "corrupt", f"expected a readable AVIF file, got {len(data)} bytes that are not one"
        ) from error
    pixels = max(pixels, width * height)
    return Header(
        format="AVIF",
        width=width,
        height=height,
        orientation=orientation,
        cost=max(LEAST_COST, 1 + COST_OF_CODED_BYTE * coded_bytes / pixels) * pixels / (width * height),
        data=data,
        decode=by_pillow,
    )


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start and end of the content of each box, until `end` or a batch's zeros."""
    for _ in range(MAX_BOXES):
        if at + 8 > end or not any(data[at : at + 8]):
            return
        length, name = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if length == 1 and start + 8 <= end:
            (length,) = struct.unpack_from(">Q", data, start)
            start += 8
        box_end = at + length if length else end
        if box_end > end:
            raise truncated("AVIF", f"the end of its box {name.decode('latin-1')} at byte {box_end}", data)
        if box_end < start:
            raise corrupt("AVIF", "boxes as long as their own headers", f"one of {length} bytes")
        yield name, start, box_end
        at = box_end
    raise corrupt("AVIF", f"at most {MAX_BOXES} boxes", "more")


def _check_tables(data: bytes, meta: dict[bytes, Span]) -> None:
    """Raise InvalidImageError, corrupt, where the lists of items, or of their properties, are too long."""
    properties = {name: (start, end) for name, start, end in _boxes(data, *meta[b"iprp"])}
    list(_boxes(data, *properties[b"ipco"]))  # refuses too many
    spans = [meta[name] for name in TABLES if name in meta]
    spans += [(start, end) for name, start, end in _boxes(data, *meta[b"iprp"]) if name == b"ipma"]
    for start, end in spans:
        if end - start > MAX_TABLE_BYTES:
            raise corrupt("AVIF", f"lists of items of at most {MAX_TABLE_BYTES} bytes", end - start)


def _item_types(data: bytes, start: int, end: int) -> dict[int, tuple[bytes, int]]:
    """Read box iinf: an item's number to its type, and where in the file that stands."""
    count_bytes = 2 if data[start] == 0 else 4
    first = start + 4 + count_bytes
    count = int.from_bytes(data[start + 4 : first], "big")
    types: dict[int, tuple[bytes, int]] = {}
    for name, at, _ in itertools.islice(_boxes(data, first, end), count):
        if name != b"infe" or data[at] not in (2, 3):
            raise corrupt("AVIF", "entries of version 2 or 3 in its box `iinf`", f"{name!r}")
        code, type_at = (">H", at + 8) if data[at] == 2 else (">I", at + 10)
        (number,) = struct.unpack_from(code, data, at + 4)
        if number in types:
            raise corrupt("AVIF", "one type for each item", f"two of item {number}")
        types[number] = (data[type_at : type_at + 4], type_at)
    return types


def _item_extents(data: bytes, meta: dict[bytes, Span]) -> dict[int, list[Span]]:
    """Read box iloc: an item's number to the stretches of the file that hold it."""
    at, _ = meta[b"iloc"]
    version, sizes = data[at], data[at + 4] << 8 | data[at + 5]
    offset_bytes, length_bytes, base_bytes, index_bytes = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    number_bytes = 2 if version < 2 else 4
    position = at + 6

    def take(count: int) -> int:
        nonlocal position
        value = data[position : position + count]
        if len(value) < count:
            raise IndexError
        position += count
        return int.from_bytes(value, "big")

    items: dict[int, list[Span]] = {}
    count, pieces = take(number_bytes), 0
    for _ in range(count):
        number = take(number_bytes)
        in_idat = version > 0 and take(2) & 15 == 1  # the construction method
        take(2)  # data reference
        base = take(base_bytes) + (meta[b"idat"][0] if in_idat else 0)
        extents = []
        for _ in range(take(2)):
            if version > 0:
                take(index_bytes)
            start = base + take(offset_bytes)
            length = take(length_bytes)
            extents.append((start, start + length if length else len(data)))
        items[number] = extents
        pieces += 1 + len(extents)
        if pieces > 2 * MAX_ITEMS:
            raise corrupt("AVIF", f"at most {MAX_ITEMS} items and their pieces", "more")
    return items


def _announced_pixels(av1: bytes) -> int:
    """Return how many pixels the frames in the AV1 data of one picture may have. Source: AV1, 5.3 to 5.5."""
    at, largest, frames = 0, 0, 0
    for _ in range(MAX_UNITS):
        if at >= len(av1):
            return largest * max(frames, 1)
        header = av1[at]
        at += 2 if header & 4 else 1  # an extension
        length = len(av1) - at
        if header & 2:
            length, shift = 0, 0
            while at < len(av1) and shift < 56:  # leb128
                byte, at = av1[at], at + 1
                length |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
        kind = header >> 3 & 15
        frames += kind in (FRAME_HEADER, FRAME)
        if kind == SEQUENCE_HEADER:
            largest = max(largest, _frame_pixels(_Bits(av1[at : at + min(length, 256)])))
        at += length
    raise corrupt("AVIF", f"at most {MAX_UNITS} units of AV1 in a picture", "more")


def _frame_pixels(bits: _Bits) -> int:
    """Read a sequence header up to its largest frame's size. Source: AV1, 5.5.1."""
    bits(3 + 1)  # profile, still picture
    if bits(1):  # reduced still picture header
        bits(5)
    else:
        decoder_model, delay_bits = False, 0
        if bits(1):  # timing info
            bits(32 + 32)
            if bits(1):
                zeros = 0  # a number of variable length, uvlc
                while zeros < 32 and not bits(1):
                    zeros += 1
                bits(zeros)
            decoder_model = bool(bits(1))
            if decoder_model:
                delay_bits = bits(5) + 1
                bits(32 + 5 + 5)
        initial_delay = bits(1)
        for _ in range(bits(5) + 1):  # operating points
            bits(12)
            if bits(5) > 7:  # level
                bits(1)
            if decoder_model and bits(1):
                bits(2 * delay_bits + 1)
            if initial_delay and bits(1):
                bits(4)
    width_bits, height_bits = bits(4) + 1, bits(4) + 1
    return (bits(width_bits) + 1) * (bits(height_bits) + 1)


def _only_stills(
    data: bytes, brands: Span, boxes: list[tuple[bytes, int, int]], types: dict[int, tuple[bytes, int]]
) -> bytes:
    """Rename each item that is no picture, and what makes a sequence of it: libavif passes over what it does not know.

    Of a sequence, the brand avis, it would read the track; as an avif it reads the still picture that is beside it.
    """
    edited = bytearray(data)
    for at in range(*brands, 4):
        if data[at : at + 4] == b"avis":
            edited[at : at + 4] = b"avif"
    for name, start, _ in boxes:
        if name == b"moov":
            at = data.rindex(name, 0, start)
            edited[at : at + 4] = b"skip"
    for kind, at in types.values():
        if kind not in KEPT_ITEMS:
            edited[at : at + 4] = b"skip"
    return bytes(edited)
