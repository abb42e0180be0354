"""PNG: chunks of length, type, content, checksum. Source: PNG specification, third edition, sections 5.3 and 11."""

import struct
import zlib

from ..errors import InvalidImageError
from ..orientation import read_orientation
from .codecs import by_opencv
from .header import Header, corrupt, truncated

SIGNATURE = b"\x89PNG\r\n\x1a\n"

# The chunks that the pixels of the first picture depend on. The others stay away from the decoder: compressed text and
# profiles unpack to gigabytes, and OpenCV's reader of animations crashes on damaged ones.
KEPT = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}
EXIF_KEYWORD, XMP_KEYWORD = b"Raw profile type exif", b"XML:com.adobe.xmp"
COSTS = {(16, 2): 1.25, (16, 6): 1.5}  # of RGB and RGBA of 16 bits: there are twice as many bytes to undo filters of
MAX_METADATA_BYTES = 1 << 16  # unpacked, of one chunk; orientation stands at the start of EXIF
MAX_CHUNKS = 100_000  # so that reading a header stays cheap; a large file has thousands


def read(data: bytes) -> Header:
    """Walk the chunks up to IEND."""
    kept, frames, metadata, at = [SIGNATURE], 0, {}, len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        length, kind = struct.unpack(">I4s", data[at : at + 8].ljust(8, b"\0"))
        end = at + 12 + length
        if end > len(data):
            raise truncated("PNG", "its chunk IEND", data)
        if (kind == b"IHDR") != (len(kept) == 1):
            raise corrupt("PNG", "one IHDR at its beginning", f"{kind!r} at byte {at}")
        if kind in KEPT:
            kept.append(data[at:end])
        elif kind[:1].isupper():  # a critical chunk: the pixels cannot be known without it
            raise corrupt("PNG", "known critical chunks", f"{kind!r} at byte {at}")
        elif kind == b"fcTL":
            frames += 1
        elif kind == b"eXIf":
            metadata[EXIF_KEYWORD] = data[at + 8 : end - 4]
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            keyword, _, rest = data[at + 8 : end - 4].partition(b"\0")
            if keyword in (EXIF_KEYWORD, XMP_KEYWORD) and keyword not in metadata:
                metadata[keyword] = _text(kind, keyword, rest)
        if kind == b"IEND":
            break
        at = end
    else:
        raise InvalidImageError("corrupt", f"expected at most {MAX_CHUNKS} chunks, got more in {len(data)} bytes")
    width, height, depth, colour_type = struct.unpack(">IIBB", kept[1][8:18].ljust(10, b"\0"))
    return Header(
        format="PNG",
        width=width,
        height=height,
        orientation=read_orientation(metadata.get(EXIF_KEYWORD, b""), metadata.get(XMP_KEYWORD, b"")),
        frames=max(frames, 1),
        cost=COSTS.get((depth, colour_type), 1),
        data=b"".join(kept),
        decode=by_opencv,
    )


def _text(kind: bytes, keyword: bytes, rest: bytes) -> bytes:
    """Unpack the text after a keyword; that of EXIF is hexadecimal digits after three lines, ImageMagick's format."""
    packed = kind == b"zTXt"
    if kind == b"zTXt":
        rest = rest[1:]  # the method
    elif kind == b"iTXt":
        packed = rest[:1] == b"\1"
        rest = rest[2:].split(b"\0", 2)[-1]  # after a language and a translated keyword
    try:
        text = zlib.decompressobj().decompress(rest, MAX_METADATA_BYTES) if packed else rest[:MAX_METADATA_BYTES]
        return bytes.fromhex(text.split(b"\n", 3)[-1].decode("ascii")) if keyword == EXIF_KEYWORD else text
    except (zlib.error, ValueError):
        return b""
