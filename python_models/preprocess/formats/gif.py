"""GIF: a screen, then blocks; the first picture is what counts. Source: GIF89a specification."""

import struct

from ..errors import InvalidImageError
from .codecs import by_pillow
from .header import Header, corrupt, truncated

SIGNATURES = (b"GIF87a", b"GIF89a")
EXTENSION, PICTURE, TRAILER = b"\x21", b"\x2c", b"\x3b"
GRAPHIC_CONTROL = 0xF9  # the extension that belongs to the picture after it: its transparent colour
MAX_BLOCKS = 300_000  # sub-blocks too, which usually have 255 bytes: as many as 70 MB have


def read(data: bytes) -> Header:
    """Walk the blocks up to the trailer, and keep those of the first picture."""
    data = data.rstrip(b"\0")  # a GIF file never ends in a zero byte: these are a batch's padding
    if len(data) < 13:
        raise _truncated(data)
    width, height, flags = struct.unpack("<HHB", data[6:11])
    at = screen_end = 13 + _palette_bytes(flags)
    graphic_control, picture, frames, blocks_left = b"", b"", 0, MAX_BLOCKS
    while data[at : at + 1] != TRAILER:
        start, kind = at, data[at : at + 1]
        if kind == EXTENSION:
            at += 2
        elif kind == PICTURE and at + 10 <= len(data):
            left, top, columns, rows, flags = struct.unpack("<HHHHB", data[at + 1 : at + 10])
            at += 11 + _palette_bytes(flags)
        elif kind and kind != PICTURE:
            raise corrupt("GIF", "a block or the trailer", f"{kind.hex()} at byte {at}")
        else:
            raise _truncated(data)
        at, blocks_left = _end_of_sub_blocks(data, at, blocks_left - 1)
        if kind == EXTENSION and data[start + 1] == GRAPHIC_CONTROL:
            graphic_control = data[start:at]
        elif kind == PICTURE:
            frames += 1
            if frames == 1:  # Pillow widens the screen to what the first picture covers
                width, height = max(width, left + columns), max(height, top + rows)
                picture = graphic_control + data[start:at]
    if frames == 0:
        raise corrupt("GIF", "a picture", "none")
    return Header(
        format="GIF",
        width=width,
        height=height,
        frames=frames,
        data=data[:screen_end] + picture + TRAILER,
        decode=by_pillow,
    )


def _palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _end_of_sub_blocks(data: bytes, at: int, blocks_left: int) -> tuple[int, int]:
    """Return where the sub-blocks that start at `at` end, and how many more a file may have.

    Each has its length in front, the last is empty.
    """
    while at < len(data):
        if blocks_left <= 0:
            raise corrupt("GIF", f"at most {MAX_BLOCKS} blocks", f"more in {len(data)} bytes")
        length, blocks_left = data[at], blocks_left - 1
        at += 1 + length
        if length == 0:
            return at, blocks_left
    raise _truncated(data)


def _truncated(data: bytes) -> InvalidImageError:
    return truncated("GIF", "its trailer 3b", data)
