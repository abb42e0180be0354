"""BMP: a file header, one of several information headers, and rows. Source: Microsoft, BITMAPINFOHEADER."""

import struct

from .codecs import by_opencv, by_pillow
from .header import BUDGET_BYTES_PER_PIXEL, Header, corrupt, truncated, unsupported

SIGNATURE = b"BM"
LEAST_BYTES = 26
HEADERS_BYTES = 54  # of the file and the usual information header
CORE_HEADER_BYTES = 12  # OS/2's, with 16-bit sizes; all others begin alike
HEADER_BYTES = {CORE_HEADER_BYTES, 16, 40, 52, 56, 64, 108, 124}
RUN_LENGTH = {1: 8, 2: 4}  # compression: bits a pixel
DEPTHS = {1, 4, 8, 16, 24, 32}  # bits a pixel
BYTES_PER_PIXEL = 9  # while it is decoded
UNCOMPRESSED = {0, 3, 6}  # plain, and with masks of the channels' bits
MAX_END_ZEROS = 3  # after the runs, which end in 00 01


def is_bmp(data: bytes) -> bool:
    """Two letters are a weak signature: text may begin with them too."""
    is_cut = len(data.rstrip(b"\0")) < 18
    return data.startswith(SIGNATURE) and (is_cut or int.from_bytes(data[14:18], "little") in HEADER_BYTES)


def read(data: bytes) -> Header:
    """Read the headers; the length of the file follows from them, for its rows may end in zeros."""
    if len(data) < LEAST_BYTES:
        raise truncated("BMP", "the end of its headers", data)
    headers = data[:HEADERS_BYTES].ljust(HEADERS_BYTES, b"\0")
    offset, header_bytes = struct.unpack_from("<II", headers, 10)
    if header_bytes == CORE_HEADER_BYTES:
        width, height, bits = struct.unpack_from("<HH2xH", headers, 18)
        compression, coded_bytes = 0, 0
    else:
        width, height, bits, compression, coded_bytes = struct.unpack_from("<ii2xHII", headers, 18)
    height = abs(height)  # negative where the rows go from the top down
    if width < 1:
        raise corrupt("BMP", "a positive width", width)
    if compression in UNCOMPRESSED and bits in DEPTHS:
        end = offset + (width * bits + 31) // 32 * 4 * height
        whole = end <= len(data)
    elif RUN_LENGTH.get(compression) == bits:
        coded = data.rstrip(b"\0")
        end = offset + coded_bytes if coded_bytes else len(coded)
        whole = end <= min(len(data), len(coded) + MAX_END_ZEROS)
    else:
        raise unsupported("BMP", "rows of pixels or of runs", f"compression {compression} of {bits} bits")
    if not whole:
        raise truncated("BMP", f"the end of its last row at byte {end}", data)
    return Header(
        format="BMP",
        width=width,
        height=height,
        cost=BYTES_PER_PIXEL / BUDGET_BYTES_PER_PIXEL,
        data=data[:end],
        # Pillow's reader of runs is a loop in Python; OpenCV's of masks loses the low bits
        decode=by_pillow if compression in UNCOMPRESSED else by_opencv,
    )
