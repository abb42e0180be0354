"""What hostile files cost: those above the limits nothing, those within them what the limits say."""

import concurrent.futures
import io
import json
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
from server.installation import ROOT
from server.process import TritonServer
from tests import writers
from tests.asking import ask
from tests.running import pids_of

DEFAULT = Limits(max_image_bytes=1 << 26, max_image_pixels=1 << 26, max_image_frames=1000, max_jpeg_scans=20)
REFUSAL_CPU_S = 0.1
REFUSAL_GROWTH_BYTES = 64 << 20


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


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


BOMBS: dict[Callable[[], bytes], str] = {
    jpeg_of_gigapixels: "too_many_pixels",
    jpeg_of_many_scans: "too_many_pixels",
    jpeg_of_hidden_scans: "too_many_pixels",
    png_of_gigapixels: "too_many_pixels",
    gif_of_gigapixels: "too_many_pixels",
    gif_of_many_frames: "too_many_pixels",
    webp_of_gigapixels: "too_many_pixels",
    bmp_of_gigapixels: "too_many_pixels",
    tiff_of_gigapixels: "too_many_pixels",
    tiff_of_a_huge_tile: "too_many_pixels",
    tiff_of_strips_that_share_their_bytes: "corrupt",
    tiff_of_one_long_row: "too_many_pixels",
    avif_that_lies_about_its_size: "too_many_pixels",
    lambda: b"P2 60000 60000 255\n" + b"0 " * 1000: "too_many_pixels",
    lambda: b"P2 1 1 255\n" + b"#\n" * 1_000_000 + b"1": "corrupt",
    lambda: b"P6 60000 60000 255\n" + b"\1" * 1000: "truncated",
}
NAMES = [getattr(bomb, "__name__", "") for bomb in BOMBS][:-3] + ["ascii_pnm", "comments", "binary_pnm"]


@pytest.mark.parametrize(("bomb", "code"), BOMBS.items(), ids=NAMES)
def test_a_bomb_is_refused_at_once(bomb: Callable[[], bytes], code: str, tmp_path: Path) -> None:
    file = bomb()
    taken = decode_alone(file, DEFAULT.max_image_pixels, tmp_path)
    assert taken["outcome"].startswith(f"{code}: ")
    assert taken["cpu_s"] < REFUSAL_CPU_S
    assert taken["grown_bytes"] < REFUSAL_GROWTH_BYTES


def test_bombs_harm_neither_the_service_nor_a_neighbour(server: TritonServer, photos: Path) -> None:
    """Each travels in a batch with a photograph, while others ask about the photograph alone."""
    coffee = (photos / "coffee.png").read_bytes()
    bombs = [bomb() for bomb in BOMBS]
    stubs = pids_of(server, "preprocess")
    assert len(stubs) == 2  # instances
    before = {pid: resident_bytes(pid) for pid in stubs}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        batches = [pool.submit(ask, server, "grpc", [bomb, coffee]) for bomb in bombs]
        neighbours = [pool.submit(ask, server, "http", [coffee]) for _ in range(32)]
        assert all(single.result()["label"][0, 0] == b"espresso" for single in neighbours)
        for batch, code in zip(batches, BOMBS.values(), strict=True):
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

MAX_PIXELS = 6_000_000
BYTES_PER_PIXEL = 8
COPIES = 4  # of the file itself: as it came, without padding, what the decoder is given


def noise(pixels: float, mode: str = "RGB") -> Image.Image:
    """A picture of at most so many pixels that no format compresses well."""
    width = 3000
    height = int(pixels / width)
    channels = {"RGB": 3, "RGBA": 4, "CMYK": 4, "L": 1}[mode]
    y, x = np.mgrid[0:height, 0:width]
    gradient = np.stack([(x + c * y) // 17 % 256 for c in range(channels)], axis=2)
    grain = np.random.default_rng(0).integers(0, 12, gradient.shape)
    values = np.minimum(gradient + grain, 255).astype(np.uint8)
    return Image.fromarray(values[:, :, 0] if mode == "L" else values, mode)


def interlaced_png_of_16_bits() -> bytes:
    rgba = np.asarray(noise(MAX_PIXELS / 1.5, "RGBA")).astype(np.uint16) * 257
    return writers.png(rgba, 16, "rgb-alpha", interlaced=True)


# Each the costliest of its kind, with as many pixels as it may have.
COSTLIEST: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: encoded(noise(MAX_PIXELS), "JPEG", quality=95, subsampling=0),
    "jpeg progressive": lambda: encoded(noise(MAX_PIXELS * 8 / 9.5), "JPEG", progressive=True, subsampling=0),
    "jpeg progressive cmyk": lambda: encoded(noise(MAX_PIXELS * 8 / 12.5, "CMYK"), "JPEG", progressive=True),
    "jpeg turned": lambda: encoded(
        noise(MAX_PIXELS), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0"
    ),
    "png": interlaced_png_of_16_bits,
    "webp lossy": lambda: encoded(noise(MAX_PIXELS, "RGBA"), "WEBP", method=0),
    "webp lossless": lambda: encoded(noise(MAX_PIXELS * 8 / 11, "RGBA"), "WEBP", lossless=True, quality=0, method=0),
    "gif": lambda: encoded(noise(MAX_PIXELS, "L"), "GIF"),
    "tiff rgba": lambda: encoded(noise(MAX_PIXELS * 8 / 10, "RGBA"), "TIFF", compression="tiff_lzw"),
    "tiff cmyk": lambda: encoded(noise(MAX_PIXELS * 8 / 10, "CMYK"), "TIFF", compression="tiff_deflate"),
    "tiff jpeg": lambda: encoded(noise(MAX_PIXELS * 8 / 10), "TIFF", compression="jpeg"),
    "bmp": lambda: encoded(noise(MAX_PIXELS, "RGBA"), "BMP"),
    "avif": lambda: encoded(noise(MAX_PIXELS / 2), "AVIF", speed=10, quality=90, subsampling="4:4:4"),
    "pnm": lambda: encoded(noise(MAX_PIXELS), "PPM"),
    "pnm ascii": lambda: b"P3 1000 %d 255 " % (MAX_PIXELS // 4000) + b"200 " * (3 * 1000 * (MAX_PIXELS // 4000)),
}


@pytest.mark.parametrize("name", COSTLIEST)
def test_the_costliest_file_within_the_limits_keeps_to_their_memory(name: str, tmp_path: Path) -> None:
    """At a tenth of the usual limit, for the sake of time; the bound is in proportion."""
    file = COSTLIEST[name]()
    taken = decode_alone(file, MAX_PIXELS, tmp_path)
    assert taken["outcome"] == "pixels"
    spent = taken["grown_bytes"] - COPIES * len(file)
    assert spent < BYTES_PER_PIXEL * MAX_PIXELS, f"{spent / taken['pixels']:.1f} bytes a pixel"


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
    assert taken["grown_bytes"] < COPIES * len(text)


def test_limits_are_inclusive() -> None:
    file = small("PNG")
    exact = Limits(max_image_bytes=len(file), max_image_pixels=64 * 64, max_image_frames=1, max_jpeg_scans=1)
    assert decode(np.frombuffer(file, np.uint8), exact).shape == (64, 64, 3)
    for name in ("max_image_bytes", "max_image_pixels"):
        values = {**vars(exact), name: getattr(exact, name) - 1}
        with pytest.raises(InvalidImageError, match=name.replace("max_image", "too_many")):
            decode(np.frombuffer(file, np.uint8), Limits(**values))
