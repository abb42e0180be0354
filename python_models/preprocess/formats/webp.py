"""WebP: RIFF chunks of name, length, content; the first picture is what counts. Source: RFC 9649."""

import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..errors import InvalidImageError
from ..orientation import read_orientation
from .codecs import by_opencv
from .header import BUDGET_BYTES_PER_PIXEL, Header, corrupt, truncated

SIGNATURE = b"RIFF"
MAX_CHUNKS = 100_000
# A file that was cut and then padded with zeros still decodes: to a picture whose lower part is flat. So does a whole
# one of which the lower part is flat, and its data too ends in zeros. They differ in what the decoder reads: of a whole
# file everything, to the last bytes, so that without these it does not decode.
MAX_END_ZEROS = 3
LAST_BYTES = MAX_END_ZEROS + 1
COST_OF_CHECKING_ZEROS = 2  # times: it is decoded twice
LOSSLESS_BYTES_PER_PIXEL = 11  # while it is decoded: with alpha, within libwebp, in its own order of colours, in RGB


def is_webp(data: bytes) -> bool:
    return data[:4] == SIGNATURE and data[8:12] == b"WEBP"


def read(data: bytes) -> Header:
    """Walk the chunks; only the first picture's own, without its alpha, is handed to the decoder."""
    (length,) = struct.unpack_from("<I", data, 4)
    if 8 + length > len(data):
        raise truncated("WebP", f"its end at byte {8 + length}", data)
    picture, canvas, place, frames = None, None, None, 0
    metadata: dict[bytes, bytes] = {}
    for name, content in _chunks(data[: 8 + length], 12):
        if name == b"VP8X" and len(content) >= 10:
            canvas = (_uint24(content, 4) + 1, _uint24(content, 7) + 1)
        elif name == b"ANMF" and len(content) >= 16:
            frames += 1
            if frames == 1:
                place = (2 * _uint24(content, 0), 2 * _uint24(content, 3))
                picture = next((chunk for chunk in _chunks(content, 16) if chunk[0] in (b"VP8 ", b"VP8L")), None)
        elif name in (b"VP8 ", b"VP8L") and picture is None:
            picture, frames = (name, content), 1
        elif name in (b"EXIF", b"XMP "):
            metadata.setdefault(name, content)
            if name == b"XMP " and _end_zeros(content) > MAX_END_ZEROS:  # a text
                raise truncated("WebP", "the end of its XMP", content.rstrip(b"\0"))
    if picture is None:
        raise corrupt("WebP", "a picture", "none")
    width, height = _picture_size(*picture)
    header = Header(
        format="WEBP",
        width=width,
        height=height,
        orientation=read_orientation(metadata.get(b"EXIF", b""), metadata.get(b"XMP ", b"")),
        frames=frames,
        cost=LOSSLESS_BYTES_PER_PIXEL / BUDGET_BYTES_PER_PIXEL if picture[0] == b"VP8L" else 1,
        data=_riff(*picture),
        decode=by_opencv,
    )
    zeros = _end_zeros(picture[1])
    if zeros > MAX_END_ZEROS:
        if picture[0] == b"VP8 " and len(picture[1]) - zeros < _first_partition_end(picture[1]) - MAX_END_ZEROS:
            raise truncated("WebP", "the end of its picture", picture[1].rstrip(b"\0"))
        header = replace(header, cost=COST_OF_CHECKING_ZEROS * header.cost, decode=_decode_if_read_to_the_end)
    if place is not None and canvas is not None:
        left, top = place
        if left + width > canvas[0] or top + height > canvas[1]:
            raise corrupt("WebP", f"a first picture within {canvas[0]} x {canvas[1]}", f"{width} x {height} at {place}")
        if canvas != (width, height):
            return _on_canvas(header, *canvas, left, top)
    return header


def _chunks(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    for _ in range(MAX_CHUNKS):
        if at + 8 > len(data):
            return
        name, length = struct.unpack_from("<4sI", data, at)
        if name == bytes(4):
            raise truncated("WebP", "the end of its chunks", data[:at])
        if at + 8 + length > len(data):
            raise corrupt("WebP", "chunks within it", f"{name!r} of {length} bytes at byte {at} of {len(data)}")
        yield name, data[at + 8 : at + 8 + length]
        at += 8 + length + length % 2
    raise InvalidImageError("corrupt", f"expected at most {MAX_CHUNKS} chunks, got more in {len(data)} bytes")


def _picture_size(name: bytes, content: bytes) -> tuple[int, int]:
    """Read width and height: in VP8 after a frame tag and a start code, in VP8L after a signature, 14 bits each."""
    if len(content) < 10:
        raise corrupt("WebP", "a picture with a header", f"{len(content)} bytes of it")
    if name == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 6)
        return width & 0x3FFF, height & 0x3FFF
    (bits,) = struct.unpack_from("<I", content, 1)
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _first_partition_end(content: bytes) -> int:
    """Return where in VP8 data the modes of the blocks end, and their samples begin. Source: RFC 6386, 9.1."""
    return 10 + (int.from_bytes(content[:3], "little") >> 5)


def _riff(name: bytes, content: bytes) -> bytes:
    """Wrap one picture into a file of its own."""
    chunk = struct.pack("<4sI", name, len(content)) + content + bytes(len(content) % 2)
    return struct.pack("<4sI4s", SIGNATURE, 4 + len(chunk), b"WEBP") + chunk


def _decode_if_read_to_the_end(header: Header) -> npt.NDArray[np.uint8]:
    name, content = next(_chunks(header.data, 12))
    try:
        by_opencv(replace(header, data=_riff(name, content[:-LAST_BYTES])))
    except InvalidImageError:
        return by_opencv(header)
    raise InvalidImageError(
        "truncated",
        f"expected a WebP file whose data ends with its picture, got zeros from byte "
        f"{len(header.data.rstrip(bytes(1)))} on",
    )


def _end_zeros(content: bytes) -> int:
    return len(content) - len(content.rstrip(b"\0"))


def _on_canvas(picture: Header, width: int, height: int, left: int, top: int) -> Header:
    """Put a picture that covers a part of its animation's canvas onto black, as Pillow does."""

    def decode(header: Header) -> npt.NDArray[np.uint8]:
        canvas = np.zeros((height, width, 3), np.uint8)
        canvas[top : top + picture.height, left : left + picture.width] = picture.decode(picture)
        return canvas

    return replace(picture, width=width, height=height, cost=2 * picture.cost, decode=decode)


def _uint24(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 3], "little")
