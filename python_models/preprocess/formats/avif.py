"""AVIF: boxes of length, name, content; items, of which the pictures are AV1. Sources: ISO/IEC 14496-12; AV1, 5.5.

libavif reads the file, by way of Pillow. Here are found only what it would not tell before it decodes: whether all of
the pictures is there, and how large they say they are in their own data, which libavif believes.
"""

import io
import struct
from collections.abc import Iterator

from PIL import Image

from ..errors import InvalidImageError
from .codecs import by_pillow
from .header import Header, corrupt, truncated, unsupported

BRANDS_AT = 8
MAX_BOXES = 10_000
MAX_ITEMS = 10_000
KEPT_ITEMS = {b"av01", b"grid", b"iden", b"iovl", b"tmap"}  # pictures; EXIF and XMP would be copied at the file's word
PICTURE = b"av01"
COST = 2  # times: of memory and time of other formats, where the colours are not subsampled
SEQUENCE_HEADER = 1


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
    end_of_data = len(data.rstrip(b"\0"))
    boxes = list(_boxes(data, 0, len(data)))
    brands = data[BRANDS_AT : boxes[0][2]]
    if b"avif" not in (brands[at : at + 4] for at in range(0, len(brands), 4)):
        raise unsupported("HEIF", "the brand avif: a still picture in AV1", f"{brands[:4].decode('latin-1')!r}")
    contents = {name: (start, end) for name, start, end in boxes}
    if b"meta" not in contents:
        raise unsupported("AVIF", "a still picture, in a box `meta`", "none")
    start, end = contents[b"meta"]
    meta = {name: (start, end) for name, start, end in _boxes(data, start + 4, end)}
    try:
        types = _item_types(data, *meta[b"iinf"])
        items = _item_extents(data, meta)
    except (KeyError, IndexError, struct.error) as error:
        raise corrupt("AVIF", "whole boxes `iinf` and `iloc`", "others") from error
    pixels = 0
    for number, extents in items.items():
        if types.get(number, (b"", 0))[0] == PICTURE:
            if extents and max(end for _, end in extents) > end_of_data:  # AV1 data ends in a bit that is set
                raise truncated("AVIF", f"the end of a picture at byte {max(end for _, end in extents)}", data)
            pixels += _largest_frame(b"".join(data[start:end] for start, end in extents))
    return _header(_without_metadata(data[: boxes[-1][2]], types), pixels)


def _header(data: bytes, pixels: int) -> Header:
    try:
        with Image.open(io.BytesIO(data), formats=["AVIF"]) as image:
            (width, height), orientation = image.size, image.getexif().get(0x0112, 1)
    except Exception as error:  # of many kinds, as when it decodes
        raise InvalidImageError(
            "corrupt", f"expected a readable AVIF file, got {len(data)} bytes that are not one"
        ) from error
    return Header(
        format="AVIF",
        width=width,
        height=height,
        orientation=orientation,
        cost=COST * max(pixels / (width * height), 1),
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


def _item_types(data: bytes, start: int, end: int) -> dict[int, tuple[bytes, int]]:
    """Read box iinf: an item's number to its type, and where in the file that stands."""
    types = {}
    first = start + (6 if data[start] == 0 else 8)
    for name, at, _ in _boxes(data, first, end):
        if name == b"infe" and data[at] in (2, 3):
            code, type_at = (">H", at + 8) if data[at] == 2 else (">I", at + 10)
            (number,) = struct.unpack_from(code, data, at + 4)
            types[number] = (data[type_at : type_at + 4], type_at)
    return types


def _item_extents(data: bytes, meta: dict[bytes, tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
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

    items: dict[int, list[tuple[int, int]]] = {}
    count, extents_left = take(number_bytes), MAX_ITEMS
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
            extents_left -= 1
            if extents_left == 0:
                raise corrupt("AVIF", f"at most {MAX_ITEMS} pieces of items", "more")
        items[number] = extents
    return items


def _largest_frame(av1: bytes) -> int:
    """Return the pixels of the largest frame that the AV1 data of one picture announces. Source: AV1, 5.3 to 5.5."""
    at, largest = 0, 0
    while at < len(av1):
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
        if header >> 3 & 15 == SEQUENCE_HEADER:
            largest = max(largest, _frame_pixels(_Bits(av1[at : at + min(length, 256)])))
        at += length
    return largest


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


def _without_metadata(data: bytes, types: dict[int, tuple[bytes, int]]) -> bytes:
    """Rename the type of each item that is no picture: libavif passes over what it does not know.

    Of a sequence, the brand avis, it would read the track; as an avif it reads the still picture that is beside it.
    """
    edited = bytearray(data)
    edited[BRANDS_AT : BRANDS_AT + 4] = b"avif"
    for kind, at in types.values():
        if kind not in KEPT_ITEMS:
            edited[at : at + 4] = b"skip"
    return bytes(edited)
