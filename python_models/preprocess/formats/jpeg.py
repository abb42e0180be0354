"""JPEG: markers, each with a segment of its own, and image data after a scan's. Source: ITU-T T.81, annex B."""

import re
import struct

from ..errors import InvalidImageError
from ..orientation import read_orientation
from .codecs import by_opencv, by_pillow
from .header import BUDGET_BYTES_PER_PIXEL, Header, corrupt, truncated, unsupported

SIGNATURE = b"\xff\xd8\xff"

# The next marker with a segment of its own, wherever the search starts: in image data each ff is followed by 00, and
# fill bytes (ff), TEM (01) and restarts (d0 to d7) have no content.
MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")
END, SCAN, APP1, ADOBE = 0xD9, 0xDA, 0xE1, 0xEE
APPLICATION_DATA = {*range(0xE0, 0xF0), 0xFE} - {ADOBE}  # APPn and comments; of them only Adobe's changes colours
FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; those three are tables
DECODED_FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}  # baseline, extended, progressive; the last two arithmetic-coded
XMP = b"http://ns.adobe.com/xap/1.0/\0"

MAX_SEGMENTS = 100_000  # so that reading a header stays cheap


def read(data: bytes) -> Header:
    """Walk the segments up to the end marker; what follows it, such as the film of a phone's photo, is left out."""
    data = data.rstrip(b"\0")  # a JPEG file never ends in a zero byte: these are a batch's padding
    at, scans, frame, exif, xmp, skipped = 2, 0, None, b"", b"", []
    for _ in range(MAX_SEGMENTS):
        found = MARKER.search(data, at)
        if found is None:
            raise truncated("JPEG", "its end marker ff d9", data)
        marker, start = found[1][0], found.end()
        if marker == END:
            data = data[:start]
            break
        at = start + max(int.from_bytes(data[start : start + 2], "big"), 2)
        if marker in FRAMES and frame is None:
            frame = (marker, data[start + 2 : at])
        elif marker == SCAN:
            scans += 1
        elif marker == APP1 and not exif and data.startswith(b"Exif\0\0", start + 2):
            exif = data[start + 2 : at]
        elif marker == APP1 and data.startswith(XMP, start + 2):
            xmp = data[start + 2 : at]
        if marker in APPLICATION_DATA:
            skipped.append((found.start(), at))
    else:
        raise InvalidImageError("corrupt", f"expected at most {MAX_SEGMENTS} segments, got more in {len(data)} bytes")
    if frame is None:
        raise corrupt("JPEG", "a frame header", f"{len(data)} bytes without one")
    return _with_frame(*frame, scans, read_orientation(exif, xmp), data, skipped)


def _with_frame(
    marker: int, frame: bytes, scans: int, orientation: int, data: bytes, skipped: list[tuple[int, int]]
) -> Header:
    """Read the frame header: precision, height, width, and of each component its sampling factors."""
    if len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
        raise corrupt("JPEG", "a whole frame header", f"one of {len(frame)} bytes")
    precision, height, width, components = struct.unpack(">BHHB", frame[:6])
    if marker not in DECODED_FRAMES or precision != 8:
        raise unsupported(
            "JPEG", "8 bits a sample, baseline or progressive", f"{precision} bits, frame type SOF{marker - 0xC0}"
        )
    if components not in (1, 3, 4):
        raise unsupported("JPEG", "1, 3 or 4 components", components)
    samplings = [max(frame[7 + 3 * i] >> 4, 1) * max(frame[7 + 3 * i] & 15, 1) for i in range(components)]
    # Where there are several scans the decoder keeps the coefficients of the whole picture, of two bytes each.
    coefficient_bytes = 2 * sum(samplings) / max(samplings) if scans > 1 else 0
    inks = components == 4  # CMYK and YCCK: OpenCV turns them to RGB with another rounding
    picture_bytes = 4 if inks else 3  # a pixel, while it is decoded; then it is copied to an array
    return Header(
        format="JPEG",
        width=width,
        height=height,
        orientation=orientation,
        scans=scans,
        cost=max(picture_bytes + coefficient_bytes, picture_bytes + 3) / BUDGET_BYTES_PER_PIXEL,
        data=_without(skipped, data) if inks else data,
        decode=by_pillow if inks else by_opencv,
    )


def _without(skipped: list[tuple[int, int]], data: bytes) -> bytes:
    """Leave out parts of `data`: Pillow would read them, at a cost that the file decides."""
    starts = [0, *(end for _, end in skipped)]
    ends = [*(start for start, _ in skipped), len(data)]
    return b"".join(data[start:end] for start, end in zip(starts, ends, strict=True))
