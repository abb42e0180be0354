"""JPEG: markers, each with a segment of its own, and image data after a scan's. Source: ITU-T T.81, annex B."""

import re
import struct
from dataclasses import replace

from ..errors import InvalidImageError
from ..orientation import read_orientation
from .codecs import by_opencv, by_pillow
from .header import BUDGET_BYTES_PER_PIXEL, Header, corrupt, truncated, unsupported

SIGNATURE = b"\xff\xd8\xff"

# The next marker with a segment of its own, wherever the search starts: in image data each ff is followed by 00; fill
# bytes (ff), TEM (01) and restarts (d0 to d7) have no content, and libjpeg gives none to the reserved ones (02 to bf).
MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")
END, SCAN, APP1, ADOBE = 0xD9, 0xDA, 0xE1, 0xEE
APPLICATION_DATA = {*range(0xE0, 0xF0), 0xFE} - {ADOBE}  # APPn and comments; of them only Adobe's changes colours
PROGRESSIVE = {0xC2, 0xCA}
MAX_TABLES_BYTES = 1 << 16  # in front of the first scan, where Pillow reads them, slowly
FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; those three are tables
DECODED_FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}  # baseline, extended, progressive; the last two arithmetic-coded
XMP = b"http://ns.adobe.com/xap/1.0/\0"

SLACK_BYTES_PER_PIXEL = 0.5
MAX_SEGMENTS = 100_000  # so that reading a header stays cheap


def read(data: bytes) -> Header:
    """Walk the segments up to the end marker; what follows it, such as the film of a phone's photo, is left out."""
    data = data.rstrip(b"\0")  # a JPEG file never ends in a zero byte: these are a batch's padding
    at, scans, frame, first_scan, exif, xmp, tables = 2, 0, None, b"", b"", b"", []
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
            if scans == 1:
                first_scan, first_scan_at = data[start + 2 : at], found.start()
        elif marker == APP1 and not exif and data.startswith(b"Exif\0\0", start + 2):
            exif = data[start + 2 : at]
        elif marker == APP1 and data.startswith(XMP, start + 2):
            xmp = data[start + 2 : at]
        if scans == 0 and marker not in APPLICATION_DATA:
            tables.append(data[found.start() : at])
    else:
        raise InvalidImageError("corrupt", f"expected at most {MAX_SEGMENTS} segments, got more in {len(data)} bytes")
    if frame is None or scans == 0:
        raise corrupt("JPEG", "a frame header and a scan", f"{len(data)} bytes without them")
    header = _read_frame(*frame, scans, first_scan, read_orientation(exif, xmp), data)
    if header.decode is by_pillow:
        return replace(header, data=_only_tables(tables) + data[first_scan_at:])
    return header


def _read_frame(marker: int, frame: bytes, scans: int, first_scan: bytes, orientation: int, data: bytes) -> Header:
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
    samplings = [(frame[7 + 3 * i] >> 4, frame[7 + 3 * i] & 15) for i in range(components)]
    block_width, block_height = (8 * max(*factors, 1) for factors in zip(*samplings, strict=True))
    blocks = -(-width // block_width) * -(-height // block_height)
    # Where one scan is not all there is, the decoder keeps the coefficients of the whole picture, of two bytes each.
    is_buffered = scans > 1 or marker in PROGRESSIVE or first_scan[:1] != frame[5:6]
    coefficients = 2 * 64 * sum(max(x, 1) * max(y, 1) for x, y in samplings) / (block_width * block_height)
    inks = components == 4  # CMYK and YCCK: OpenCV turns them to RGB with another rounding
    picture_bytes = 4 if inks else 3  # of a pixel, while it is decoded; then it is copied to an array
    bytes_per_pixel = max(picture_bytes + coefficients * is_buffered, picture_bytes + 3) + SLACK_BYTES_PER_PIXEL
    return Header(
        format="JPEG",
        width=width,
        height=height,
        orientation=orientation,
        scans=scans,
        coded_pixels=blocks * block_width * block_height,
        cost=bytes_per_pixel / BUDGET_BYTES_PER_PIXEL,
        data=data,
        decode=by_pillow if inks else by_opencv,
    )


def _only_tables(tables: list[bytes]) -> bytes:
    """What stands in front of the first scan, without what Pillow would read at a cost that the file decides."""
    if sum(map(len, tables)) > MAX_TABLES_BYTES:
        raise corrupt("JPEG", f"at most {MAX_TABLES_BYTES} bytes of tables", sum(map(len, tables)))
    return b"\xff\xd8" + b"".join(tables)
