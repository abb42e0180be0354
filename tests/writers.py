"""Image files written by hand from raw sample values: the variants that Pillow reads and does not write."""

import io
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Samples = npt.NDArray[Any]  # unsigned integers (H, W, C), each below 2 ** depth


def packed(samples: Samples, depth: int) -> npt.NDArray[np.uint8]:
    """The rows (H, bytes) of an image: samples of 1 to 16 bits, most significant bit first, each row from a byte on."""
    bits = samples.astype(np.uint16)[..., None] >> np.arange(depth - 1, -1, -1, dtype=np.uint16) & 1
    return np.packbits(bits.reshape(len(samples), -1).astype(np.uint8), axis=1)


def gradient(width: int, height: int) -> npt.NDArray[np.uint8]:
    """Another pattern in each channel, so that swapped axes or channels show; full of ties, where roundings show."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 / max(width - 1, 1), y * 255 / max(height - 1, 1), (x * y) % 256]
    image: npt.NDArray[np.uint8] = np.stack(channels, axis=2).astype(np.uint8)
    return image


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


# PNG

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_COLOUR_TYPES = {"gray": 0, "rgb": 2, "palette": 3, "gray-alpha": 4, "rgb-alpha": 6}
ADAM7 = [
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
]  # x, y, dx, dy


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(samples: Samples, depth: int, colour: str, *, interlaced: bool = False, chunks: bytes = b"") -> bytes:
    """A PNG file; `chunks` stand before its data. Source: PNG specification, 7 to 11."""
    height, width, channels = samples.shape
    passes = [samples[y::dy, x::dx] for x, y, dx, dy in (ADAM7 if interlaced else [(0, 0, 1, 1)])]
    bytes_per_pixel = max(depth * channels // 8, 1)
    scanlines = b"".join(_filtered(packed(part, depth), bytes_per_pixel) for part in passes if part.size)
    header = struct.pack(">IIBBBBB", width, height, depth, PNG_COLOUR_TYPES[colour], 0, 0, interlaced)
    data = png_chunk(b"IDAT", zlib.compress(scanlines))
    return PNG_SIGNATURE + png_chunk(b"IHDR", header) + chunks + data + png_chunk(b"IEND", b"")


def _filtered(rows: npt.NDArray[np.uint8], bytes_per_pixel: int) -> bytes:
    """Each scanline behind the number of its filter; the five filters take turns, so that each of them is read."""
    padded = np.pad(rows.astype(np.int16), ((1, 0), (bytes_per_pixel, 0)))
    left, up, corner = padded[1:, :-bytes_per_pixel], padded[:-1, bytes_per_pixel:], padded[:-1, :-bytes_per_pixel]
    predictions = [np.zeros_like(left), left, up, (left + up) // 2, _paeth(left, up, corner)]
    lines = [bytes([y % 5]) + (row - predictions[y % 5][y]).astype(np.uint8).tobytes() for y, row in enumerate(rows)]
    return b"".join(lines)


def _paeth(left: Samples, up: Samples, corner: Samples) -> Samples:
    estimate: Samples = left + up - corner
    to_left, to_up, to_corner = abs(estimate - left), abs(estimate - up), abs(estimate - corner)
    nearest: Samples = np.where(to_up <= to_corner, up, corner)
    return np.where((to_left <= to_up) & (to_left <= to_corner), left, nearest)


# BMP


def bmp(
    samples: Samples | tuple[int, int, bytes],
    depth: int,
    *,
    palette: Samples | None = None,
    masks: Sequence[int] = (),
    compression: int = 0,
    header_bytes: int = 40,
    top_down: bool = False,
) -> bytes:
    """A BMP file of samples as they stand in it (B, G, R), or of (width, height, data) where a caller compressed them.

    With header_bytes 12 that of OS/2, 108 and 124 those with masks of their own. Source: Microsoft, Bitmap Storage.
    """
    if isinstance(samples, tuple):
        width, height, data = samples
    else:
        height, width = samples.shape[:2]
        data = _bmp_rows(samples, depth, top_down)
    table = b"" if palette is None else _bmp_palette(palette, entry_bytes=3 if header_bytes == 12 else 4)
    after = struct.pack(f"<{len(masks)}I", *masks) if header_bytes == 40 else b""
    offset = 14 + header_bytes + len(after) + len(table)
    if header_bytes == 12:
        header = struct.pack("<IHHHH", 12, width, height, 1, depth)
    else:
        signed_height = -height if top_down else height
        colours = 0 if palette is None else len(palette)
        header = struct.pack("<IiiHHI", header_bytes, width, signed_height, 1, depth, compression)
        header += struct.pack("<IiiII", len(data), 2835, 2835, colours, 0)
        header += struct.pack(f"<{len(masks)}I", *masks) if header_bytes > 40 else b""
    header = header.ljust(header_bytes, b"\0")
    return struct.pack("<2sIHHI", b"BM", offset + len(data), 0, 0, offset) + header + after + table + data


def _bmp_rows(samples: Samples, depth: int, top_down: bool) -> bytes:
    rows = samples if top_down else samples[::-1]
    if depth == 16:
        packed_rows = np.ascontiguousarray(rows[:, :, 0].astype("<u2")).view(np.uint8)
    else:
        packed_rows = packed(rows, min(depth, 8))
    return np.pad(packed_rows, ((0, 0), (0, -packed_rows.shape[1] % 4))).tobytes()


def _bmp_palette(palette: Samples, entry_bytes: int) -> bytes:
    """R, G, B (colours, 3) to B, G, R and, but in OS/2's files, one byte of nothing."""
    return np.pad(palette[:, ::-1].astype(np.uint8), ((0, 0), (0, entry_bytes - 3))).tobytes()


def bmp_run_lengths(indices: npt.NDArray[np.uint8], depth: int) -> tuple[int, int, bytes]:
    """Indices (H, W) of 4 or 8 bits as runs, and in every other row as literals where there are enough of them."""
    height, width = indices.shape
    encode = [_bmp_runs, _bmp_literals]
    lines = [encode[y % 2 if width > 2 else 0](row, depth) for y, row in enumerate(indices[::-1])]
    return width, height, b"\0\0".join(lines) + b"\0\1"


def _bmp_runs(row: npt.NDArray[np.uint8], depth: int) -> bytes:
    starts = np.flatnonzero(np.diff(row, prepend=row[:1] ^ 1))
    runs = zip(row[starts].tolist(), np.diff(starts, append=len(row)).tolist(), strict=True)
    pieces = [(value, min(255, length - at)) for value, length in runs for at in range(0, length, 255)]
    return b"".join(bytes([length, value * 17 if depth == 4 else value]) for value, length in pieces)


def _bmp_literals(row: npt.NDArray[np.uint8], depth: int) -> bytes:
    """Literals come in threes or more: a rest of one or two is written as runs."""
    coded = b""
    for at in range(0, len(row), 252):
        piece = row[at : at + 252]
        if len(piece) < 3:
            coded += _bmp_runs(piece, depth)
        else:
            data = packed(piece[None, :, None], depth).tobytes()
            coded += bytes([0, len(piece)]) + data + bytes(len(data) % 2)
    return coded


# TIFF

Compress = Callable[[Samples, bytes], bytes]  # the samples of one strip or tile, and the same as the bytes of its rows
TIFF_TYPES = {"H": 3, "I": 4, "Q": 16}
TIFF_GRAY, TIFF_RGB, TIFF_PALETTE, TIFF_CMYK, TIFF_YCBCR = 1, 2, 3, 5, 6
TIFF_BITS, TIFF_PHOTOMETRIC, TIFF_SAMPLES_PER_PIXEL, TIFF_PLANAR, TIFF_PREDICTOR = 258, 262, 277, 284, 317
TIFF_ORIENTATION, TIFF_COLOUR_MAP, TIFF_EXTRA_SAMPLES, TIFF_SUBSAMPLING = 274, 320, 338, 530


def tiff(
    samples: Samples,
    depth: int = 8,
    *,
    photometric: int = TIFF_RGB,
    compression: int = 1,
    compress: Compress = lambda _samples, data: data,
    tile: int | None = None,
    rows_per_strip: int = 16,
    planar: bool = False,
    predictor: bool = False,
    order: str = "<",
    big: bool = False,
    directory_last: bool = False,
    tags: dict[int, tuple[str, Sequence[int]]] | None = None,
) -> bytes:
    """A TIFF file of one page in strips, or in square tiles where a size is given. Source: TIFF 6.0, and BigTIFF."""
    height, width, channels = samples.shape
    planes = np.split(samples, channels, axis=2) if planar else [samples]
    parts = [part for plane in planes for part in (_tiles(plane, tile) if tile else _strips(plane, rows_per_strip))]
    blocks = [compress(part, _tiff_rows(part, depth, order, predictor)) for part in parts]
    entries: dict[int, tuple[str, Sequence[int]]] = {
        256: ("I", [width]),
        257: ("I", [height]),
        TIFF_BITS: ("H", [depth] * channels),
        259: ("H", [compression]),
        TIFF_PHOTOMETRIC: ("H", [photometric]),
        TIFF_SAMPLES_PER_PIXEL: ("H", [channels]),
        TIFF_PLANAR: ("H", [2 if planar else 1]),
        TIFF_PREDICTOR: ("H", [2 if predictor else 1]),
        **({322: ("I", [tile]), 323: ("I", [tile])} if tile else {278: ("I", [rows_per_strip])}),
        325 if tile else 279: ("I", [len(block) for block in blocks]),
        **(tags or {}),
    }
    return _tiff_file(entries, blocks, 324 if tile else 273, order, big, directory_last)


def _strips(plane: Samples, rows: int) -> list[Samples]:
    return [plane[y : y + rows] for y in range(0, len(plane), rows)]


def _tiles(plane: Samples, tile: int) -> list[Samples]:
    """Whole tiles, those at the right and lower edge filled up with the last pixels."""
    height, width = plane.shape[:2]
    full = np.pad(plane, ((0, -height % tile), (0, -width % tile), (0, 0)), mode="edge")
    return [full[y : y + tile, x : x + tile] for y in range(0, height, tile) for x in range(0, width, tile)]


def _tiff_rows(part: Samples, depth: int, order: str, predictor: bool) -> bytes:
    """The bytes of one strip or tile, with the predictor as differences to the pixel on the left."""
    if predictor:
        part = np.diff(part, axis=1, prepend=part[:, :1] * 0)
    return part.astype(f"{order}u2").tobytes() if depth == 16 else packed(part, depth).tobytes()


def _tiff_file(
    entries: dict[int, tuple[str, Sequence[int]]],
    blocks: list[bytes],
    offsets_tag: int,
    order: str,
    big: bool,
    directory_last: bool,
) -> bytes:
    """Header, directory and blocks, or the blocks before the directory: programs that write in one go do so."""
    data = b"".join(blocks)
    header_bytes = 16 if big else 8

    def directory(at: int, data_at: int) -> bytes:
        offsets = data_at + np.cumsum([0, *map(len, blocks[:-1])])
        return _tiff_directory({**entries, offsets_tag: ("Q" if big else "I", offsets.tolist())}, at, order, big)

    if directory_last:
        data += bytes(len(data) % 2)  # a directory begins at an even place
        at = header_bytes + len(data)
        body = data + directory(at, header_bytes)
    else:
        at = header_bytes
        body = directory(at, at + len(directory(at, 0))) + data
    mark = b"II" if order == "<" else b"MM"
    header = struct.pack(f"{order}HHHQ", 43, 8, 0, at) if big else struct.pack(f"{order}HI", 42, at)
    return mark + header + body


def _tiff_directory(entries: dict[int, tuple[str, Sequence[int]]], at: int, order: str, big: bool) -> bytes:
    """Entries in the order of their tags; values of more than 4 or 8 bytes stand after the last of them."""
    count, offset, room = ("Q", "Q", 8) if big else ("H", "I", 4)
    end = at + struct.calcsize(f"={count}{offset}") + len(entries) * (20 if big else 12)
    directory, after = struct.pack(f"{order}{count}", len(entries)), b""
    for tag, (kind, values) in sorted(entries.items()):
        content = struct.pack(f"{order}{len(values)}{kind}", *values)
        if len(content) > room:
            place = struct.pack(f"{order}{offset}", end + len(after))
            after += content + bytes(len(content) % 2)
        else:
            place = content.ljust(room, b"\0")
        directory += struct.pack(f"{order}HH{offset}", tag, TIFF_TYPES[kind], len(values)) + place
    return directory + struct.pack(f"{order}{offset}", 0) + after


def deflate(_samples: Samples, data: bytes) -> bytes:
    return zlib.compress(data)


def lzw(_samples: Samples, data: bytes) -> bytes:
    """LZW that never compresses: literals of 9 bits, and the table cleared before its codes grow to 10."""
    clear, end, most = 256, 257, 250
    codes = [code for at in range(0, len(data), most) for code in (clear, *data[at : at + most])]
    return packed(np.reshape([*codes, end], (1, -1, 1)), 9).tobytes()


def packbits(_samples: Samples, data: bytes) -> bytes:
    """Runs of two equal bytes and more, and literals; each at most 128 bytes long."""
    values = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] ^ 1))
    lengths = np.diff(starts, append=len(values)).tolist()
    coded = b""
    for start, length in zip(starts.tolist(), lengths, strict=True):
        for at in range(start, start + length, 128):
            run = min(128, start + length - at)
            coded += bytes([257 - run if run > 1 else 0, data[at]])
    return coded


# GIF, WebP, PNM


def gif_on_canvas(file: bytes, width: int, height: int, left: int, top: int) -> bytes:
    """Move the first frame of a GIF of one frame with a global palette onto a canvas that is larger than it.

    Source: GIF89a specification, 18 and 20: the screen's size, and the place in the image's descriptor.
    """
    at = 13 + 3 * 2 ** ((file[10] & 7) + 1)
    while file[at] == 0x21:  # extensions: label, blocks, an empty block
        at += 2
        while file[at]:
            at += 1 + file[at]
        at += 1
    screen, place = struct.pack("<HH", width, height), struct.pack("<HH", left, top)
    return file[:6] + screen + file[10 : at + 1] + place + file[at + 5 :]


def webp_chunk(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def webp_animation(frames: Iterable[tuple[bytes, int, int, int, int]], width: int, height: int) -> bytes:
    """An animated WebP on a canvas, of files of one frame with their left, top, width, height; places are even.

    Source: WebP container specification, Animation.
    """
    chunks = webp_chunk(b"VP8X", struct.pack("<I", 0b10010) + _u24(width - 1, height - 1))
    chunks += webp_chunk(b"ANIM", bytes([10, 200, 30, 255]) + struct.pack("<H", 0))
    for file, left, top, frame_width, frame_height in frames:
        place = _u24(left // 2, top // 2, frame_width - 1, frame_height - 1, 100) + b"\0"
        chunks += webp_chunk(b"ANMF", place + file[12:])
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks


def _u24(*values: int) -> bytes:
    return b"".join(struct.pack("<I", value)[:3] for value in values)


PNM_HEADER = "P{magic}\n{width} {height}\n{maximum}\n"


def pnm(samples: Samples, magic: int, maximum: int = 255, header: str = PNM_HEADER) -> bytes:
    """P1 to P6; P1 and P4, of black 1 on white 0, have no maximum. Source: the manual pages pbm, pgm, ppm of Netpbm."""
    height, width = samples.shape[:2]
    text = header.format(magic=magic, width=width, height=height, maximum=maximum).encode()
    if magic == 4:
        return text + packed(samples, 1).tobytes()
    if magic in (5, 6):
        return text + samples.astype(">u2" if maximum > 255 else np.uint8).tobytes()
    return text + "\n".join(" ".join(map(str, row)) for row in samples.reshape(height, -1).tolist()).encode() + b"\n"
