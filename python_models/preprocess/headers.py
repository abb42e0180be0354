"""What the bytes of a JPEG or PNG file say before any pixel is decoded: its size, its structure, what it would cost."""

import struct
from dataclasses import dataclass

from .errors import InvalidImageError

JPEG_SIGNATURE = b"\xff\xd8\xff"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The chunks that the pixels of the first picture depend on, and its orientation. The others stay away from the decoder:
# compressed text and profiles unpack to gigabytes, and OpenCV's reader of animations crashes on damaged ones.
PNG_CHUNKS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"eXIf"}


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
        width, height = _jpeg_size(data)
        # In image data each ff is followed by 00, so the marker of a scan stands nowhere else (but in a thumbnail).
        return Header("JPEG", width, height, max(data.count(b"\xff\xda"), 1), data)
    raise InvalidImageError(
        f"not_an_image: expected a JPEG or PNG file, got {len(data)} bytes starting {data[:8].hex(' ')}"
    )


def _read_png(data: bytes) -> Header:
    """Walk the chunks: length, type, content, checksum. Source: PNG specification, 5.3 and 11.2.1."""
    kept, at, kind = [PNG_SIGNATURE], len(PNG_SIGNATURE), b""
    while kind != b"IEND":
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
        at = end
    width, height = struct.unpack(">II", kept[1][8:16].ljust(8, b"\0"))
    return Header("PNG", width, height, 1, b"".join(kept))


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Walk the segments up to the frame header SOFn: marker, length (itself included), precision, height, width.

    Source: ITU-T T.81, annex B. C4, C8 and CC share the range of SOFn but are no frame headers.
    """
    at = 2
    while at + 9 <= len(data):
        marker = data[at + 1]
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at] != 0xFF or marker in (0x00, 0xD8, 0xD9):
            found = data[at : at + 2].hex(" ")
            raise InvalidImageError(f"corrupt: expected a segment of a JPEG header at byte {at}, got {found}")
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # markers without content
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        elif length < 2:
            raise InvalidImageError(f"corrupt: expected a JPEG segment of 2 bytes or more at byte {at}, got {length}")
        else:
            at += 2 + length
    raise InvalidImageError(f"truncated: expected a JPEG frame header, got {len(data)} bytes without one")
