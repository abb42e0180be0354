"""GIF: a screen, then blocks; the first picture is what counts. Source: GIF89a specification."""

import struct

from .codecs import by_pillow
from .header import Header, corrupt, truncated

SIGNATURES = (b"GIF87a", b"GIF89a")
EXTENSION, PICTURE, TRAILER = 0x21, 0x2C, 0x3B
GRAPHIC_CONTROL = 0xF9  # the extension that belongs to the picture after it: its transparent colour
MAX_BLOCKS = 1_000_000  # data blocks have up to 255 bytes each


def read(data: bytes) -> Header:
    """Walk the blocks up to the trailer, and keep those of the first picture."""
    data = data.rstrip(b"\0")  # a GIF file never ends in a zero byte: these are a batch's padding
    if len(data) < 13:
        raise truncated("GIF", "its trailer 3b", data)
    width, height, flags = struct.unpack("<HHB", data[6:11])
    at = 13 + _palette_bytes(flags)
    kept, frames = [data[:at]], 0
    for _ in range(MAX_BLOCKS):
        start, kind = at, data[at] if at < len(data) else None
        if kind is None:
            raise truncated("GIF", "its trailer 3b", data)
        if kind == TRAILER:
            break
        if kind == EXTENSION:
            at = _end_of_sub_blocks(data, at + 2)
            if frames == 0 and data[start + 1] == GRAPHIC_CONTROL:
                kept.append(data[start:at])
        elif kind == PICTURE:
            if at + 10 > len(data):
                raise truncated("GIF", "its trailer 3b", data)
            left, top, columns, rows, flags = struct.unpack("<HHHHB", data[at + 1 : at + 10])
            at = _end_of_sub_blocks(data, at + 11 + _palette_bytes(flags))
            if frames == 0:  # Pillow widens the screen to what the first picture covers
                width, height = max(width, left + columns), max(height, top + rows)
                kept.append(data[start:at])
            frames += 1
        else:
            raise corrupt("GIF", "a block or the trailer", f"{kind:02x} at byte {at}")
    if frames == 0:
        raise corrupt("GIF", "a picture", "none")
    return Header(
        format="GIF",
        width=width,
        height=height,
        frames=frames,
        data=b"".join(kept) + bytes([TRAILER]),
        decode=by_pillow,
    )


def _palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _end_of_sub_blocks(data: bytes, at: int) -> int:
    """Return where the sub-blocks that start at `at` end: each has its length in front, the last is empty."""
    while at < len(data):
        length = data[at]
        at += 1 + length
        if length == 0:
            return at
    raise truncated("GIF", "its trailer 3b", data)
