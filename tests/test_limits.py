"""What hostile files cost: those above the limits nothing, those within them what the limits say."""

import concurrent.futures
import json
import math
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.utils
from PIL import Image

from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.errors import InvalidImageError
from python_models.preprocess.formats import read_header
from server.installation import ROOT
from server.process import TritonServer
from tests import writers
from tests.asking import ask
from tests.running import pids_of
from tests.writers import encoded

DEFAULT = Limits(max_image_bytes=1 << 26, max_image_pixels=1 << 26, max_image_frames=1000, max_jpeg_scans=20)
REFUSAL_CPU_S = 0.1
REFUSAL_GROWTH_BYTES = 64 << 20


# Above the limits


def small(format: str, **options: Any) -> bytes:
    return encoded(Image.new("RGB", (64, 64), (200, 100, 50)), format, **options)


def jpeg_of_gigapixels() -> bytes:
    file = bytearray(small("JPEG", progressive=True))
    at = file.index(b"\xff\xc2")
    file[at + 5 : at + 9] = struct.pack(">HH", 30000, 30000)
    return bytes(file)


def jpeg_of_many_scans() -> bytes:
    file = encoded(Image.new("RGB", (8000, 8000)), "JPEG", progressive=True)
    last = file[file.rindex(b"\xff\xda") : -2]
    return file[:-2] + 100 * last + file[-2:]


def jpeg_of_hidden_scans() -> bytes:
    """Inside what looks like a segment of a reserved marker, of which libjpeg skips the marker alone."""
    file = jpeg_of_gigapixels().replace(struct.pack(">HH", 30000, 30000), struct.pack(">HH", 8192, 8192))
    last = file[file.rindex(b"\xff\xda") : -2]
    hidden = last * (65000 // len(last))
    return file[:-2] + b"\xff\x02" + struct.pack(">H", len(hidden) + 2) + hidden + file[-2:]


def png_of_gigapixels() -> bytes:
    header = struct.pack(">IIBBBBB", 65000, 65000, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    return writers.PNG_SIGNATURE + b"".join(writers.png_chunk(*chunk) for chunk in chunks)


def gif_of_gigapixels() -> bytes:
    file = bytearray(small("GIF"))
    file[6:10] = struct.pack("<HH", 65535, 65535)
    return bytes(file)


def gif_of_many_frames() -> bytes:
    file = small("GIF")
    start = file.index(b"\x2c", 13 + 3 * 2 ** ((file[10] & 7) + 1))
    return file[:start] + 1001 * file[start:-1] + file[-1:]


def webp_of_gigapixels() -> bytes:
    file = bytearray(small("WEBP", lossless=True))
    at = file.index(b"VP8L") + 9
    file[at : at + 4] = struct.pack("<I", 16383 | 16383 << 14)
    return bytes(file)


def bmp_of_gigapixels() -> bytes:
    runs = b"\xff\0" * 100 + b"\0\1"
    header = struct.pack("<IiiHHIIiiII", 40, 30000, 30000, 1, 8, 1, len(runs), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 1024 + len(runs), 0, 0, 54 + 1024) + header + bytes(1024) + runs


def tiff_of_gigapixels() -> bytes:
    return _tiff_with(small("TIFF", compression="tiff_deflate"), {256: 30000, 257: 30000})


def tiff_of_a_huge_tile() -> bytes:
    samples = np.zeros((64, 64, 3), np.uint8)
    return _tiff_with(writers.tiff(samples, 8, tile=64, compress=writers.deflate), {322: 30000, 323: 30000})


def tiff_of_strips_that_share_their_bytes() -> bytes:
    """Each strip says that it is the whole file: what a decoder reads grows with the square of the file."""
    file = bytearray(encoded(Image.new("L", (4, 2000)), "TIFF", compression="packbits", tiffinfo={278: 1}))
    (directory,) = struct.unpack_from("<I", file, 4)
    (count,) = struct.unpack_from("<H", file, directory)
    for at in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, kind, values, place = struct.unpack_from("<HHII", file, at)
        if tag in (273, 279):
            code = {3: "H", 4: "I"}[kind]
            value = 8 if tag == 273 else min(len(file) - 8, 65535)
            struct.pack_into(f"<{values}{code}", file, place, *[value] * values)
    return bytes(file)


def tiff_of_one_long_row() -> bytes:
    """Of CCITT's codes libtiff keeps 16 bytes for each column."""
    return _tiff_with(encoded(Image.new("1", (64, 64)), "TIFF", compression="group4"), {256: 1 << 26, 257: 1})


def _tiff_with(file: bytes, values: dict[int, int]) -> bytes:
    """Overwrite values in the first directory."""
    edited, order = bytearray(file), "<" if file[:2] == b"II" else ">"
    (directory,) = struct.unpack_from(order + "I", file, 4)
    (count,) = struct.unpack_from(order + "H", file, directory)
    for at in range(directory + 2, directory + 2 + 12 * count, 12):
        (tag,) = struct.unpack_from(order + "H", file, at)
        if tag in values:
            struct.pack_into(order + "HII", edited, at + 2, 4, 1, values[tag])
    return bytes(edited)


def avif_that_lies_about_its_size() -> bytes:
    """The box says 64 x 64, the AV1 data 9000 x 9000, which libavif would decode, and then scale."""
    file = bytearray(encoded(Image.new("RGB", (9000, 9000)), "AVIF", speed=10))
    at = file.index(b"ispe") + 8
    file[at : at + 8] = struct.pack(">II", 64, 64)
    return bytes(file)


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "jpeg_of_gigapixels": (jpeg_of_gigapixels, "too_many_pixels"),
    "jpeg_of_many_scans": (jpeg_of_many_scans, "too_many_pixels"),
    "jpeg_of_hidden_scans": (jpeg_of_hidden_scans, "too_many_pixels"),
    "png_of_gigapixels": (png_of_gigapixels, "too_many_pixels"),
    "gif_of_gigapixels": (gif_of_gigapixels, "too_many_pixels"),
    "gif_of_many_frames": (gif_of_many_frames, "too_many_pixels"),
    "webp_of_gigapixels": (webp_of_gigapixels, "too_many_pixels"),
    "bmp_of_gigapixels": (bmp_of_gigapixels, "too_many_pixels"),
    "tiff_of_gigapixels": (tiff_of_gigapixels, "too_many_pixels"),
    "tiff_of_a_huge_tile": (tiff_of_a_huge_tile, "too_many_pixels"),
    "tiff_of_strips_that_share_their_bytes": (tiff_of_strips_that_share_their_bytes, "corrupt"),
    "tiff_of_one_long_row": (tiff_of_one_long_row, "too_many_pixels"),
    "avif_that_lies_about_its_size": (avif_that_lies_about_its_size, "too_many_pixels"),
    "ascii_pnm": (lambda: b"P2 60000 60000 255\n" + b"0 " * 1000, "too_many_pixels"),
    "comments": (lambda: b"P2 1 1 255\n" + b"#\n" * 1_000_000 + b"1", "corrupt"),
    "binary_pnm": (lambda: b"P6 60000 60000 255\n" + b"\1" * 1000, "truncated"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once(name: str, tmp_path: Path) -> None:
    bomb, code = BOMBS[name]
    taken = decode_alone(bomb(), DEFAULT.max_image_pixels, tmp_path)
    assert taken["outcome"].startswith(f"{code}: ")
    assert taken["cpu_s"] < REFUSAL_CPU_S
    assert taken["grown_bytes"] < REFUSAL_GROWTH_BYTES


def test_bombs_harm_neither_the_service_nor_a_neighbour(server: TritonServer, photos: Path) -> None:
    """Each travels in a batch with a photograph, while others ask about the photograph alone."""
    coffee = (photos / "coffee.png").read_bytes()
    bombs = [bomb() for bomb, _ in BOMBS.values()]
    stubs = pids_of(server, "preprocess")
    assert len(stubs) == 2  # instances
    before = {pid: resident_bytes(pid) for pid in stubs}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        batches = [pool.submit(ask, server, "grpc", [bomb, coffee]) for bomb in bombs]
        neighbours = [pool.submit(ask, server, "http", [coffee]) for _ in range(32)]
        assert all(single.result()["label"][0, 0] == b"espresso" for single in neighbours)
        for batch, (_, code) in zip(batches, BOMBS.values(), strict=True):
            answer = batch.result()
            assert answer["error"][0, 0].startswith(f"preprocess: {code}: image 0: ".encode())
            assert answer["label"][1, 0] == b"espresso"
    for bomb in bombs:
        with pytest.raises(tritonclient.utils.InferenceServerException, match="preprocess: "):
            ask(server, "grpc", [bomb])
    assert pids_of(server, "preprocess") == stubs
    # The batch is in it too: the longest bomb, the photograph beside it, and what Triton keeps of them.
    batch_bytes = 4 * 2 * max(map(len, bombs))
    assert all(resident_bytes(pid) - before[pid] < REFUSAL_GROWTH_BYTES + batch_bytes for pid in stubs)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def decode_alone(file: bytes, max_image_pixels: int, folder: Path) -> dict[str, Any]:
    (folder / "file").write_bytes(file)
    command = [sys.executable, "-m", "tests.decode_once", str(folder / "file"), str(max_image_pixels)]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    taken: dict[str, Any] = json.loads(outcome.stdout)
    return taken


# Within the limits

BYTES_PER_PIXEL = 8
SLACK_BYTES = 8 << 20  # of libraries and allocators, whatever the picture
MOST_CPU_S = 3 * 2  # at the usual limit; 2 is the promise, on a machine that does nothing else
WIDTH, HEIGHT = 3000, 2000


def picture(mode: str = "RGB") -> Image.Image:
    """Gradients with a little noise: no format compresses it to nothing, and none leaves the file as large."""
    channels = {"RGB": 3, "RGBA": 4, "CMYK": 4, "L": 1}[mode]
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    gradient = np.stack([(x + c * y) // 17 % 250 for c in range(channels)], axis=2)
    grain = np.random.default_rng(0).integers(0, 5, gradient.shape)
    values = (gradient + grain).astype(np.uint8)
    return Image.fromarray(values[:, :, 0] if mode == "L" else values, mode)


def interlaced_png_of_16_bits() -> bytes:
    return writers.png(np.asarray(picture("RGBA")).astype(np.uint16) * 257, 16, "rgb-alpha", interlaced=True)


def tiff_in_one_strip() -> bytes:
    rgba = np.zeros((HEIGHT, WIDTH, 4), np.uint16)
    extra: dict[int, tuple[str, list[int]]] = {338: ("H", [2])}
    return writers.tiff(
        rgba,
        16,
        compression=8,
        compress=writers.deflate,
        rows_per_strip=HEIGHT,
        tags=extra,  # type: ignore[arg-type]
    )


# Each the costliest of its kind.
TURNED = b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0"
COSTLIEST: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: encoded(picture(), "JPEG", quality=95, subsampling=0),
    "jpeg progressive": lambda: encoded(picture(), "JPEG", progressive=True, subsampling=0),
    "jpeg progressive cmyk": lambda: encoded(picture("CMYK"), "JPEG", progressive=True),
    "jpeg turned": lambda: encoded(picture(), "JPEG", exif=TURNED),
    "png": lambda: encoded(picture("RGBA"), "PNG", compress_level=1),
    "png of 16 bits": interlaced_png_of_16_bits,
    "webp lossy": lambda: encoded(picture("RGBA"), "WEBP", method=0),
    "webp lossless": lambda: encoded(picture("RGBA"), "WEBP", lossless=True, quality=0, method=0),
    "webp on a canvas": lambda: writers.webp_animation(
        [(encoded(picture(), "WEBP", method=0), 0, 0, WIDTH, HEIGHT)], WIDTH + 2, HEIGHT
    ),
    "gif": lambda: encoded(picture("L"), "GIF"),
    "tiff rgba": lambda: encoded(picture("RGBA"), "TIFF", compression="tiff_lzw"),
    "tiff cmyk": lambda: encoded(picture("CMYK"), "TIFF", compression="tiff_deflate"),
    "tiff jpeg": lambda: encoded(picture(), "TIFF", compression="jpeg"),
    "tiff in one strip": tiff_in_one_strip,
    "bmp": lambda: encoded(picture("RGBA"), "BMP"),
    "avif": lambda: encoded(picture(), "AVIF", speed=10, quality=90, subsampling="4:4:4"),
    "pnm": lambda: encoded(picture(), "PPM"),
    "pnm ascii": lambda: b"P3 %d %d 255 " % (WIDTH, HEIGHT) + b"200 " * (3 * WIDTH * HEIGHT),
}


@pytest.mark.parametrize("name", COSTLIEST)
def test_the_costliest_file_within_the_limits_keeps_to_them(name: str, tmp_path: Path) -> None:
    """With the smallest limit that takes it, so that its cost is what is tested; bounds are in proportion."""
    file = COSTLIEST[name]()
    header = read_header(file)
    limit = math.ceil(header.width * header.height * max(header.cost, 1))
    below = decode_alone(file, limit - 2, tmp_path)
    assert below["outcome"].startswith("too_many_pixels: ")
    taken = decode_alone(file, limit, tmp_path)
    assert taken["outcome"] == "pixels"
    spent = taken["grown_bytes"] - len(file)  # the copy that is decoded
    assert spent < BYTES_PER_PIXEL * limit + SLACK_BYTES, f"{spent / taken['pixels']:.1f} bytes a pixel"
    assert taken["cpu_s"] < MOST_CPU_S * limit / DEFAULT.max_image_pixels


def test_values_that_many_tags_share_are_not_copied_for_each() -> None:
    """A TIFF file of one megabyte, which each of 900 unknown tags names as its value: Pillow would hold 900 copies."""
    file = small("TIFF", compression="raw")
    (directory,) = struct.unpack_from("<I", file, 4)
    (count,) = struct.unpack_from("<H", file, directory)
    entries = file[directory + 2 : directory + 2 + 12 * count]
    bomb = b"".join(struct.pack("<HHII", 40000 + tag, 1, 1 << 20, 8) for tag in range(900))
    body = file.ljust(1 << 20 | 16, b"\1")
    edited = body[:4] + struct.pack("<I", len(body)) + body[8:] + struct.pack("<H", count + 900) + entries + bomb
    started = time.process_time()
    image = decode(np.frombuffer(edited + bytes(4), np.uint8), DEFAULT)
    assert time.process_time() - started < REFUSAL_CPU_S
    assert image.shape == (64, 64, 3)


def test_exif_of_many_tags_is_not_copied_for_each() -> None:
    """5,000 tags that each name the same 60,000 bytes, in a JPEG file of 64 kB."""
    tags = b"".join(struct.pack(">HHII", 40000 + tag % 1000, 1, 60000, 8) for tag in range(5000))
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", 5000) + tags
    file = small("JPEG")
    edited = file[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + file[2:]
    started = time.process_time()
    assert decode(np.frombuffer(edited, np.uint8), DEFAULT).shape == (64, 64, 3)
    assert time.process_time() - started < REFUSAL_CPU_S


@pytest.mark.parametrize("text", [b"\n" * 20_000_000, b"41\n" * 7_000_000], ids=["empty lines", "lines"])
def test_a_long_text_is_not_unpacked(text: bytes, tmp_path: Path) -> None:
    """Split into its lines it would take gigabytes."""
    profile = writers.png_chunk(b"tEXt", b"Raw profile type exif\0" + text)
    taken = decode_alone(small("PNG")[:33] + profile + small("PNG")[33:], DEFAULT.max_image_pixels, tmp_path)
    assert taken["outcome"] == "pixels"
    assert taken["grown_bytes"] < 4 * len(text)  # copies of the whole


def test_limits_are_inclusive() -> None:
    file = small("PNG")
    exact = Limits(max_image_bytes=len(file), max_image_pixels=64 * 64, max_image_frames=1, max_jpeg_scans=1)
    assert decode(np.frombuffer(file, np.uint8), exact).shape == (64, 64, 3)
    for name in ("max_image_bytes", "max_image_pixels"):
        values = {**vars(exact), name: getattr(exact, name) - 1}
        with pytest.raises(InvalidImageError, match=name.replace("max_image", "too_many")):
            decode(np.frombuffer(file, np.uint8), Limits(**values))
