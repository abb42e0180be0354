"""PBM, PGM and PPM: a header in ASCII, then samples in ASCII (P1 to P3) or binary (P4 to P6). Source: netpbm.

Decoded here: OpenCV's reader takes no other maximum than 255, and Pillow's then is a loop in Python.
"""

import re
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from .header import Header, corrupt, truncated

SIGNATURES = tuple(b"P%d" % kind for kind in range(1, 7))
SPACE = rb"(?:\s|#[^\n\r]*[\n\r])+"
FIELD = SPACE + rb"(\d{1,10})"
MAX_HEADER_BYTES = 1 << 16  # comments included
ASCII_COST = 4  # times a binary sample's: each is parsed as a number of four bytes, from a text that is copied
MAX_COMMENTS = 1000  # among the samples
WHITE_SPACE = b" \t\n\r\v\f"


def read(data: bytes) -> Header:
    """Read the header; the length of the file follows from it, for its samples may be zeros."""
    kind = int(data[1:2])
    bits = kind in (1, 4)  # a bitmap has no maximum
    found = re.match(rb"P\d" + FIELD * (2 if bits else 3) + rb"\s", data[:MAX_HEADER_BYTES])
    if found is None:
        raise corrupt("PNM", "numbers of ASCII digits after its P1 to P6", f"{data[:32]!r}")
    width, height, maximum = (int(field) for field in (*found.groups(), b"1")[:3])
    if not 1 <= maximum <= 65535:
        raise corrupt("PNM", "a maximum from 1 to 65535", maximum)
    channels = 3 if kind in (3, 6) else 1
    start = found.end()

    def decode(header: Header) -> npt.NDArray[np.uint8]:
        samples = _ascii_samples(header.data[start:], kind, header.height * header.width * channels)
        if not 0 <= samples.min() <= samples.max() <= maximum:
            raise corrupt("PNM", f"samples from 0 to {maximum}", f"{samples.min()} to {samples.max()}")
        return _to_rgb(samples.reshape(header.height, header.width, channels), maximum)

    def decode_binary(header: Header) -> npt.NDArray[np.uint8]:
        raw = np.frombuffer(header.data, np.uint8 if maximum < 256 else ">u2", offset=start)
        if bits:
            rows = np.unpackbits(raw.reshape(header.height, -1), axis=1, count=header.width)
            return _to_rgb(1 - rows[:, :, np.newaxis], maximum)  # 1 is black
        return _to_rgb(raw.reshape(header.height, header.width, channels), maximum)

    if kind <= 3:
        return Header(format="PNM", width=width, height=height, cost=ASCII_COST, data=data.rstrip(b"\0"), decode=decode)
    row_bytes = (width + 7) // 8 if bits else width * channels * (1 if maximum < 256 else 2)
    end = start + row_bytes * height
    if end > len(data):
        raise truncated("PNM", f"its last sample at byte {end}", data)
    return Header(format="PNM", width=width, height=height, data=data[:end], decode=decode_binary)


def _ascii_samples(text: bytes, kind: int, count: int) -> npt.NDArray[Any]:
    """Parse `count` numbers; those of a bitmap are single digits, 1 for black, with or without space between."""
    if text.count(b"#") > MAX_COMMENTS:
        raise corrupt("PNM", f"at most {MAX_COMMENTS} comments", "more")
    if b"#" in text:
        text = re.sub(rb"#[^\n\r]*", b"", text)
    if kind == 1:
        digits = np.frombuffer(text.translate(None, WHITE_SPACE), np.uint8)[:count]
        samples: npt.NDArray[Any] = ord("1") - digits  # what is no digit is larger than 1
    else:
        samples = _ascii_numbers(text)[:count]
    if len(samples) < count:
        raise truncated("PNM", f"its {count} samples", text)
    return samples


def _ascii_numbers(text: bytes) -> npt.NDArray[np.int32]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how numpy says that it met something else
        try:
            numbers: npt.NDArray[np.int32] = np.fromstring(text.decode("ascii"), np.int32, sep=" ")
        except (DeprecationWarning, ValueError) as error:
            raise corrupt("PNM", "numbers of ASCII digits", "something else among its samples") from error
    return numbers


def _to_rgb(samples: npt.NDArray[Any], maximum: int) -> npt.NDArray[np.uint8]:
    """Scale samples (H, W, 1 or 3) of 0 to `maximum` to 8 bits, and gray to three channels; larger ones are clipped."""
    if maximum != 255:
        levels = np.minimum(np.arange(256 if maximum < 256 else 65536) / maximum, 1)
        if maximum > 255 and samples.shape[2] == 1:  # as in every format: of 16 bits of gray the highest 8
            table = np.rint(levels * 65535).astype(np.uint16) >> 8
        else:
            table = np.rint(levels * 255)
        samples = table.astype(np.uint8)[samples]
    return np.repeat(samples, 3 // samples.shape[2], axis=2).astype(np.uint8, copy=False)
