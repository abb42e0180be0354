"""The pure functions of preprocess, against Pillow and against the formula one number at a time."""

import csv
import json
import struct
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from benchmarks.reference import reference_pixels
from python_models.preprocess.config import FileConfig
from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.errors import Code, InvalidImageError
from python_models.preprocess.formats import UNSUPPORTED, read_header
from tests.writers import encoded, gradient, png_chunk

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PARAMETERS = {
    "resize_size": "256",
    "crop_size": "224",
    "interpolation": '"bilinear"',
    "mean": "[0.485, 0.456, 0.406]",
    "std": "[0.229, 0.224, 0.225]",
    "exif_orientation": '"apply"',
    "max_image_bytes": "1000000",
    "max_image_pixels": "1000000",
    "max_image_frames": "1000",
    "max_jpeg_scans": "20",
}


def smooth_image(width: int, height: int, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(gradient(width, height)).convert(mode)


CODES = set(get_args(Code))

# What no small picture meets.
LIMITS = Limits(max_image_bytes=1 << 26, max_image_pixels=1 << 26, max_image_frames=1000, max_jpeg_scans=20)


def decoded(file: bytes, **limits: int) -> npt.NDArray[np.uint8]:
    return decode(np.frombuffer(file, np.uint8), replace(LIMITS, **limits))


def error_of(file: bytes, **limits: int) -> str:
    with pytest.raises(InvalidImageError) as caught:
        decoded(file, **limits)
    return str(caught.value)


JPEG = encoded(smooth_image(61, 43), "JPEG", quality=90)
PNG = encoded(smooth_image(61, 43), "PNG")


# Configuration


def model_config(**changes: str | None) -> str:
    values = {key: value for key, value in {**PARAMETERS, **changes}.items() if value is not None}
    return json.dumps({"parameters": {key: {"string_value": value} for key, value in values.items()}})


def test_config_is_read_from_the_parameters() -> None:
    config = FileConfig.from_model_config(model_config(EXECUTION_ENV_PATH="/x.tar.gz"))
    assert (config.resize_size, config.crop_size, config.interpolation) == (256, 224, "bilinear")
    assert (config.mean, config.std) == (MEAN, STD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": None, "maen": "[0, 0, 0]"}, r"missing \['mean'\], unknown \['maen'\]"),
        ({"crop_size": "257"}, "crop_size: expected at most resize_size 256, got 257"),
        ({"crop_size": "0"}, "crop_size: expected a positive integer, got 0"),
        ({"crop_size": "true"}, "crop_size: expected a positive integer, got True"),
        ({"mean": "[0.5, 0.5]"}, "mean: expected three numbers"),
        ({"std": "[0.5, 0, 0.5]"}, "std: expected three numbers above 0"),
        ({"interpolation": '"nearest"'}, "interpolation: expected bilinear or bicubic, got 'nearest'"),
        ({"interpolation": "bilinear"}, "interpolation: expected JSON"),
        ({"exif_orientation": '"rotate"'}, "exif_orientation: expected apply or ignore, got 'rotate'"),
        ({"max_image_bytes": "0"}, "max_image_bytes: expected a positive integer, got 0"),
        ({"max_image_frames": "1.5"}, "max_image_frames: expected a positive integer, got 1.5"),
        ({"max_jpeg_scans": "-1"}, "max_jpeg_scans: expected a positive integer, got -1"),
        ({"max_image_pixels": None}, r"missing \['max_image_pixels'\]"),
    ],
    ids=str,
)
def test_config_refuses_what_does_not_fit(changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileConfig.from_model_config(model_config(**changes))


# Decoding


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=str)
def test_jpeg_decodes_as_pillow(mode: str, options: dict[str, object]) -> None:
    file = encoded(smooth_image(61, 43, mode), "JPEG", quality=85, **options)
    # Both are libjpeg-turbo, so the pixels are the same; its CMYK is turned to RGB by each in its own rounding.
    np.testing.assert_allclose(
        decoded(file).astype(int),
        np.asarray(reference_pixels(file)).astype(int),
        rtol=0,
        atol=1 if mode == "CMYK" else 0,
    )


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "LA", "1"])
def test_png_decodes_as_pillow(mode: str) -> None:
    file = encoded(smooth_image(61, 43, mode), "PNG")
    np.testing.assert_array_equal(decoded(file), np.asarray(reference_pixels(file)))


def test_16_bit_gray_is_scaled_not_clipped() -> None:
    gradient = np.linspace(0, 65535, 61 * 43).reshape(43, 61).astype(np.uint16)
    file = encoded(Image.fromarray(gradient), "PNG")
    expected = np.repeat((gradient >> 8)[:, :, None], 3, axis=2)
    np.testing.assert_allclose(decoded(file).astype(int), expected, rtol=0, atol=1)  # truncated or rounded


@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpeg_is_turned_upright(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(smooth_image(61, 43), "JPEG", exif=exif)
    np.testing.assert_array_equal(decoded(file), np.asarray(reference_pixels(file)))


def test_header_gives_the_size_before_decoding() -> None:
    assert [(header.width, header.height) for header in map(read_header, (JPEG, PNG))] == [(61, 43)] * 2


@pytest.mark.parametrize(
    ("file", "limits", "message"),
    [
        (b"", {}, "empty: expected an image file, got 0 bytes"),
        (bytes(1000), {}, "empty: expected an image file, got 1000 bytes, all zeros"),
        (
            b"hello world",
            {},
            "not_an_image: expected a JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF or PNM file, got 11 bytes starting 68 65 ",
        ),
        (JPEG, {"max_image_bytes": 100}, f"too_many_bytes: expected at most 100 bytes, got {len(JPEG)}"),
        (
            JPEG,
            {"max_image_pixels": 2622},
            "too_many_pixels: expected at most 2622 pixels of a JPEG file of this kind, got 61 x 43",
        ),
        (
            PNG,
            {"max_image_pixels": 2622},
            "too_many_pixels: expected at most 2622 pixels of a PNG file of this kind, got 61 x 43",
        ),
        (PNG[:50] + b"\xff" * 40 + PNG[90:], {}, f"corrupt: expected a readable PNG file, got {len(PNG)} bytes"),
        (JPEG[:2] + b"xy" + JPEG[2:], {}, "not_an_image: expected a JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF or PNM file"),
        (
            JPEG[:2] + b"\xff\xe0\0\x02\xff\xd9",
            {},
            "corrupt: expected a JPEG file with a frame header and a scan, got 8 bytes without them",
        ),
        (
            PNG[:8] + png_chunk(b"tEXt", b"a") + PNG[8:],
            {},
            "corrupt: expected a PNG file with one IHDR at its beginning, got b'tEXt' at byte 8",
        ),
    ],
    ids=[
        "empty",
        "zeros",
        "text",
        "bytes",
        "jpeg pixels",
        "png pixels",
        "corrupt png",
        "no jpeg",
        "no frame",
        "png order",
    ],
)
def test_bad_files_are_refused_by_code(file: bytes, limits: dict[str, int], message: str) -> None:
    assert error_of(file, **limits).startswith(message)


# Small files that cost a decoder gigabytes, minutes, or its life.


def test_a_damaged_animation_does_not_reach_opencv() -> None:
    """OpenCV 4.11 crashes on an animation with an unknown critical chunk: 178 bytes end the process."""
    still = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    animation = png_chunk(b"acTL", struct.pack(">II", 1, 0)) + png_chunk(
        b"fcTL", struct.pack(">IIIIIHHBB", 0, 1, 1, 0, 0, 1, 1, 0, 0)
    )
    pixels = png_chunk(b"IDAT", zlib.compress(b"\0abc"))
    file = PNG[:8] + still + animation + pixels + png_chunk(b"Vcxx", b"x") + png_chunk(b"IEND", b"")
    assert error_of(file).startswith("corrupt: expected a PNG file with known critical chunks, got b'Vcxx' at byte ")
    without = PNG[:8] + still + animation + pixels + png_chunk(b"IEND", b"")
    assert decoded(without).tolist() == [[[97, 98, 99]]]


def test_a_chunk_longer_than_the_file_allocates_nothing() -> None:
    assert error_of(PNG[:33] + b"\xff\xff\xff\xf0tEXtxxxx").startswith(
        "truncated: expected a PNG file up to its chunk IEND"
    )


def test_compressed_text_is_not_unpacked() -> None:
    """Each of these chunks of 8 kB unpacks to 8 MB."""
    bomb = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(8 << 20), 9))
    started = time.process_time()
    image = decoded(PNG[:33] + bomb * 400 + PNG[33:])
    assert time.process_time() - started < 1  # 26 s where it reaches libpng
    np.testing.assert_array_equal(image, decoded(PNG))


@pytest.mark.parametrize(
    "file",
    [
        b"\xff\xd8" + b"\xff" * (60 << 20),
        b"\xff\xd8\xff" + b"\xff\xd0" * (30 << 20),
        PNG[:33] + png_chunk(b"IDAT", b"") * 5_000_000,
    ],
    ids=["fill bytes", "restarts", "empty chunks"],
)
def test_reading_a_header_stays_cheap(file: bytes) -> None:
    started = time.process_time()
    error_of(file, max_image_bytes=1 << 27)
    assert time.process_time() - started < 2  # 8 to 15 s by a loop over the bytes


@pytest.mark.parametrize("header", [b"\xff\xff\xff", b"\xff\x01", b"\xff\x00\x00\x04xx", b"stray"], ids=str)
def test_what_stands_between_segments_is_skipped_as_libjpeg_does(header: bytes) -> None:
    """And so the size is read from the same frame header that libjpeg reads, not from one that hides behind it."""
    end = 4 + int.from_bytes(JPEG[4:6], "big")
    file = JPEG[:end] + header + JPEG[end:]
    np.testing.assert_array_equal(decoded(file), decoded(JPEG))
    assert error_of(file, max_image_pixels=61 * 43 - 1).startswith("too_many_pixels: ")


def test_what_follows_the_end_of_a_jpeg_is_left_out() -> None:
    """A phone's film after its photo, in which by chance the marker of a scan stands again and again."""
    file = JPEG + b"\xff\xda\x00\x02" * 1000 + b"the end"
    np.testing.assert_array_equal(decoded(file, max_image_pixels=61 * 43), decoded(JPEG))


def test_a_jpeg_of_very_many_scans_is_refused() -> None:
    """A progressive JPEG may go over its pixels as often as it says: 77 kB can keep a process busy for minutes."""
    file = encoded(smooth_image(61, 43), "JPEG", progressive=True)
    scans = file.count(b"\xff\xda")
    last = file[file.rindex(b"\xff\xda") : -2]
    assert decoded(file, max_image_pixels=61 * 43).shape == (43, 61, 3)
    bomb = file[:-2] + last * (21 - scans) + file[-2:]
    assert error_of(bomb, max_image_pixels=61 * 43) == (
        "too_many_pixels: expected at most 20 scans of 2623 pixels, got 21 of 61 x 43"
    )


@pytest.mark.parametrize(("signature", "name"), UNSUPPORTED.items(), ids=str)
def test_known_formats_that_are_not_read_are_named(signature: bytes, name: str) -> None:
    assert error_of(signature + b"\1" * 100).endswith(f"PNM file, got {name}")


def test_orientation_can_be_ignored() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = np.frombuffer(encoded(smooth_image(61, 43), "JPEG", exif=exif), np.uint8)
    stored = decode(file, LIMITS, "ignore")
    np.testing.assert_array_equal(decode(file, LIMITS), np.rot90(stored, k=-1))


# What this project decides otherwise than the list of expectations: formats that it does not read, though Pillow does.
NOT_READ = {"jp2__test-card-lossy-tiled.jp2": "unsupported"}


def test_odd_files_give_what_is_expected_of_them(shared_odd: list[Path]) -> None:
    with (shared_odd[0].parents[1] / "odd.csv").open(encoding="utf-8", newline="") as file:
        expectations = {row["file"]: row["expected"] for row in csv.DictReader(file)}
    assert expectations.keys() == {path.name for path in shared_odd}
    for path in shared_odd:
        actual, expected = outcome(path.read_bytes()), expectations[path.name]
        if path.name in NOT_READ:
            assert actual == NOT_READ[path.name], path.name
        elif expected == "decodes as the Pillow reference does":
            assert actual == "Pillow's pixels", path.name
        elif expected == "no decoder reads it: an error":
            assert actual in CODES, path.name
        elif path.name == "tiff__12bit.cropped.tif":  # scaled from 12 bits; Pillow gives numbers of unknown range
            assert actual == "other pixels"
        else:  # one of two libraries reads it, it is damaged, or a bomb
            assert actual in {"Pillow's pixels", *CODES}, path.name


def outcome(file: bytes) -> str:
    try:
        image = decoded(file)
    except InvalidImageError as error:
        return error.code
    return "Pillow's pixels" if np.array_equal(image, np.asarray(reference_pixels(file))) else "other pixels"


# Files of each kind that the README says is not read.


def tiff_with(compression: int = 1, bits: int = 8, sample_format: int = 1, photometric: int = 1) -> bytes:
    """A gray TIFF file of 4 x 4 zeros that says of itself what is given."""
    strip = bytes(16 * bits // 8)
    values = [(256, 4), (257, 4), (258, bits), (259, compression), (262, photometric), (273, 8), (277, 1)]
    values += [(278, 4), (279, len(strip)), (339, sample_format)]
    entries = b"".join(struct.pack("<HHII", tag, 3, 1, value) for tag, value in values)
    return b"II*\0" + struct.pack("<I", 8 + len(strip)) + strip + struct.pack("<H", len(values)) + entries + bytes(4)


def bmp_with(bits: int, compression: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, 4, 4, 1, bits, compression, 16, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 70, 0, 0, 54) + header + b"\1" * 16


def jpeg_with(frame: int, precision: int) -> bytes:
    at = JPEG.index(b"\xff\xc0")
    return JPEG[: at + 1] + bytes([frame]) + JPEG[at + 2 : at + 4] + bytes([precision]) + JPEG[at + 5 :]


def avif_of_brand(brand: bytes) -> bytes:
    file = encoded(smooth_image(16, 16), "AVIF")
    return file[:8] + brand + file[12:].replace(b"avif", b"mif1", 1)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            jpeg_with(0xC1, 12),
            "unsupported: expected a JPEG file with 8 bits a sample, baseline or progressive, got 12",
        ),
        (jpeg_with(0xC3, 8), "unsupported: expected a JPEG file with 8 bits a sample, baseline or progressive, got 8 "),
        (tiff_with(compression=34925), "unsupported: expected a TIFF file with LZW, Deflate, JPEG, CCITT, PackBits"),
        (tiff_with(compression=50000), "unsupported: expected a TIFF file with LZW, Deflate, JPEG, CCITT, PackBits"),
        (tiff_with(compression=6), "unsupported: expected a TIFF file with LZW, Deflate, JPEG, CCITT, PackBits"),
        (
            tiff_with(bits=32, sample_format=3),
            "unsupported: expected a TIFF file with gray, RGB or CMYK of up to 16 bit",
        ),
        (
            tiff_with(bits=32),
            "unsupported: expected a TIFF file with gray, RGB or CMYK of up to 16 bits, got signed or",
        ),
        (
            tiff_with(bits=16, sample_format=2),
            "unsupported: expected a TIFF file with gray, RGB or CMYK of up to 16 bi",
        ),
        (
            bmp_with(2, 0),
            "unsupported: expected a BMP file with rows of pixels or of runs, got compression 0 of 2 bits",
        ),
        (bmp_with(24, 4), "unsupported: expected a BMP file with rows of pixels or of runs, got compression 4 of 24"),
        (
            avif_of_brand(b"heic"),
            "unsupported: expected a file of the brand avif, got 'heic': HEIC, a video or another",
        ),
        (b"BMW is a maker of cars, and this a text", "not_an_image: expected a JPEG"),
        (b"P1 is the first player.", "not_an_image: expected a JPEG"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_is_not_read_is_named(file: bytes, message: str) -> None:
    assert error_of(file).startswith(message)


@pytest.mark.parametrize(
    ("samples", "message"),
    [(b"0 1 256 3", "from 0 to 255, got 0 to 256"), (b"-1 1 2 3", "got -1 to 3"), (b"1 2 x 3", "something else among")],
    ids=["too large", "negative", "letters"],
)
def test_ascii_samples_are_checked(samples: bytes, message: str) -> None:
    """Read as they are, 256 would be 0."""
    assert message in error_of(b"P2 2 2 255\n" + samples)


def test_a_multi_picture_jpeg_is_its_first_picture() -> None:
    """MPO, of cameras with two lenses: a whole second JPEG stands behind the first."""
    np.testing.assert_array_equal(decoded(JPEG + encoded(smooth_image(30, 20), "JPEG")), decoded(JPEG))


# EXIF as cameras and editors write it: byte order, type of the value, prefix. Pillow takes all of these.


@pytest.mark.parametrize("order", [b"II*\0", b"MM\0*", b"II\0*", b"MM*\0"], ids=str)
@pytest.mark.parametrize("kind", [3, 4, 6, 8, 9, 13])
@pytest.mark.parametrize("prefixes", [1, 2])
def test_orientation_is_read_as_pillow_does(order: bytes, kind: int, prefixes: int) -> None:
    code = "<" if order[:1] == b"I" else ">"
    value = struct.pack(code + {3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I"}[kind], 6).ljust(4, b"\0")
    directory = struct.pack(code + "IHHHI", 8, 1, 0x0112, kind, 1) + value + bytes(4)
    exif = b"Exif\0\0" * prefixes + order + directory
    file = JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + JPEG[2:]
    assert decoded(file).shape == (61, 43, 3)
    np.testing.assert_array_equal(decoded(file), np.asarray(reference_pixels(file)))
