"""JPEG: markers, each with a segment of its own, and image data after a scan's. Source: ITU-T T.81, annex B."""

import re
import struct
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Segment:
    marker: int
    start: int  # of the marker, in the file
    end: int  # of the content
    content: bytes  # after its length


def read(data: bytes) -> Header:
    """Read the segments up to the end marker; what follows it, such as the film of a phone's photo, is left out."""
    segments, end = _walk(data.rstrip(b"\0"))  # a JPEG file never ends in a zero byte: these are a batch's padding
    frame = next((segment for segment in segments if segment.marker in FRAMES), None)
    scans = [segment for segment in segments if segment.marker == SCAN]
    if frame is None or not scans:
        raise corrupt("JPEG", "a frame header and a scan", f"{end} bytes without them")
    header = _read_frame(frame, scans, _orientation(segments), data[:end])
    if header.decode is by_pillow:
        tables = [segment for segment in segments if segment.start < scans[0].start]
        return replace(header, data=_only_tables(tables, data) + data[scans[0].start : end])
    return header


def _walk(data: bytes) -> tuple[list[Segment], int]:
    """Return the segments, and where the end marker ends."""
    segments: list[Segment] = []
    at = len(SIGNATURE) - 1
    while len(segments) < MAX_SEGMENTS:
        found = MARKER.search(data, at)
        if found is None:
            raise truncated("JPEG", "its end marker ff d9", data)
        marker, start = found[1][0], found.end()
        if marker == END:
            return segments, start
        at = start + max(int.from_bytes(data[start : start + 2], "big"), 2)
        segments.append(Segment(marker, found.start(), at, data[start + 2 : at]))
    raise InvalidImageError("corrupt", f"expected at most {MAX_SEGMENTS} segments, got more in {len(data)} bytes")


def _orientation(segments: list[Segment]) -> int:
    """Read the first EXIF and the last XMP, as Pillow does."""
    contents = [segment.content for segment in segments if segment.marker == APP1]
    exif = next((content for content in contents if content.startswith(b"Exif\0\0")), b"")
    xmp = next((content for content in reversed(contents) if content.startswith(XMP)), b"")
    return read_orientation(exif, xmp)


def _read_frame(frame: Segment, scans: list[Segment], orientation: int, data: bytes) -> Header:
    """Read the frame header: precision, height, width, and of each component its sampling factors."""
    content = frame.content
    if len(content) < 6 or len(content) < 6 + 3 * content[5]:
        raise corrupt("JPEG", "a whole frame header", f"one of {len(content)} bytes")
    precision, height, width, components = struct.unpack(">BHHB", content[:6])
    if frame.marker not in DECODED_FRAMES or precision != 8:
        raise unsupported(
            "JPEG", "8 bits a sample, baseline or progressive", f"{precision} bits, frame type SOF{frame.marker - 0xC0}"
        )
    if components not in (1, 3, 4):
        raise unsupported("JPEG", "1, 3 or 4 components", components)
    samplings = [(content[7 + 3 * i] >> 4, content[7 + 3 * i] & 15) for i in range(components)]
    block_width, block_height = (8 * max(*factors, 1) for factors in zip(*samplings, strict=True))
    blocks = -(-width // block_width) * -(-height // block_height)
    # Where one scan is not all there is, the decoder keeps the coefficients of the whole picture, of two bytes each.
    is_buffered = len(scans) > 1 or frame.marker in PROGRESSIVE or scans[0].content[:1] != content[5:6]
    coefficients = 2 * 64 * sum(max(x, 1) * max(y, 1) for x, y in samplings) / (block_width * block_height)
    inks = components == 4  # CMYK and YCCK: OpenCV turns them to RGB with another rounding
    picture_bytes = 4 if inks else 3  # of a pixel, while it is decoded; then it is copied to an array
    bytes_per_pixel = max(picture_bytes + coefficients * is_buffered, picture_bytes + 3) + SLACK_BYTES_PER_PIXEL
    return Header(
        format="JPEG",
        width=width,
        height=height,
        orientation=orientation,
        scans=len(scans),
        coded_pixels=blocks * block_width * block_height,
        cost=bytes_per_pixel / BUDGET_BYTES_PER_PIXEL,
        data=data,
        decode=by_pillow if inks else by_opencv,
    )


def _only_tables(segments: list[Segment], data: bytes) -> bytes:
    """What stands in front of the first scan, without what Pillow would read at a cost that the file decides."""
    tables = [data[one.start : one.end] for one in segments if one.marker not in APPLICATION_DATA]
    if sum(map(len, tables)) > MAX_TABLES_BYTES:
        raise corrupt("JPEG", f"at most {MAX_TABLES_BYTES} bytes of tables", sum(map(len, tables)))
    return b"\xff\xd8" + b"".join(tables)
