"""What the bytes of a JPEG or PNG file say before any pixel is decoded: its size, its structure, what it would cost."""

import re
import struct
from dataclasses import dataclass

from .errors import InvalidImageError

JPEG_SIGNATURE = b"\xff\xd8\xff"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The chunks that the pixels of the first picture depend on, and its orientation. The others stay away from the decoder:
# compressed text and profiles unpack to gigabytes, and OpenCV's reader of animations crashes on damaged ones.
PNG_CHUNKS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"eXIf"}

# The next marker with a segment of its own, wherever the search starts: in image data each ff is followed by 00, and
# fill bytes (ff), TEM (01) and restarts (d0 to d7) have no content.
JPEG_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")
JPEG_END, JPEG_SCAN = 0xD9, 0xDA
JPEG_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; those three are tables

MAX_SEGMENTS = 100_000  # of one file, so that reading its header stays cheap; a large PNG has thousands of chunks


@dataclass(frozen=True)
class Header:
    """A file that may be decoded: `data` is what the decoder needs of it."""

    name: str  # "JPEG" or "PNG"
    width: int  # pixels, before any EXIF rotation
    height: int
    scans: int  # how often the decoder goes over the pixels: 1, or the scans of a progressive JPEG
    data: bytes


def read_header(data: bytes) -> Header:
    """Read a file without the padding after its end.

    Raises InvalidImageError: not_an_image, truncated or corrupt.
    """
    if data.startswith(PNG_SIGNATURE):
        return _read_png(data)
    if data.startswith(JPEG_SIGNATURE):
        return _read_jpeg(data)
    raise InvalidImageError(
        f"not_an_image: expected a JPEG or PNG file, got {len(data)} bytes starting {data[:8].hex(' ')}"
    )


def _read_png(data: bytes) -> Header:
    """Walk the chunks: length, type, content, checksum. Source: PNG specification, 5.3 and 11.2.1."""
    kept, at = [PNG_SIGNATURE], len(PNG_SIGNATURE)
    for _ in range(MAX_SEGMENTS):
        length, kind = struct.unpack(">I4s", data[at : at + 8].ljust(8, b"\0"))
        end = at + 12 + length
        if end > len(data):
            raise InvalidImageError(
                f"truncated: expected a PNG file up to its chunk IEND, got {len(data)} bytes that end before it"
            )
        if (kind == b"IHDR") != (len(kept) == 1):
            raise InvalidImageError(f"corrupt: expected a PNG that begins with its one IHDR, got {kind!r} at byte {at}")
        if kind in PNG_CHUNKS:
            kept.append(data[at:end])
        elif kind[:1].isupper():  # a critical chunk: the pixels cannot be known without it
            raise InvalidImageError(f"corrupt: expected the chunks of a PNG file, got {kind!r} at byte {at}")
        if kind == b"IEND":
            width, height = struct.unpack(">II", kept[1][8:16].ljust(8, b"\0"))
            return Header("PNG", width, height, 1, b"".join(kept))
        at = end
    raise _too_many_segments(data)


def _read_jpeg(data: bytes) -> Header:
    """Walk the segments up to the end marker: marker, length (itself included), content; after a scan's, image data.

    What follows the end, such as the film of a phone's photo, is left out. Source: ITU-T T.81, annex B.
    """
    at, size, scans = 2, None, 0
    for _ in range(MAX_SEGMENTS):
        found = JPEG_MARKER.search(data, at)
        if found is None:
            break
        marker, at = found[1][0], found.end()
        if marker == JPEG_END:
            data = data[:at]
            break
        if marker in JPEG_FRAMES and size is None:  # length, precision, height, width
            size = struct.unpack(">HH", data[at + 3 : at + 7].ljust(4, b"\0"))
        scans += marker == JPEG_SCAN
        at += max(int.from_bytes(data[at : at + 2], "big"), 2)
    else:
        raise _too_many_segments(data)
    if size is None:
        raise InvalidImageError(f"truncated: expected a JPEG frame header, got {len(data)} bytes without one")
    return Header("JPEG", size[1], size[0], scans, data)


def _too_many_segments(data: bytes) -> InvalidImageError:
    return InvalidImageError(f"corrupt: expected at most {MAX_SEGMENTS} segments, got more in {len(data)} bytes")
