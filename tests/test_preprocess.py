"""The pure functions of preprocess, against Pillow and against the formula one number at a time."""

import io
import json
import struct
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from benchmarks.reference import reference_pixels
from python_models.preprocess.config import FileConfig
from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.errors import InvalidImageError
from python_models.preprocess.formats import UNSUPPORTED, read_header

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
    """A picture with a different gradient in each channel, so that swapped axes or channels show."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 / max(width - 1, 1), y * 255 / max(height - 1, 1), (x * y) % 256]
    return Image.fromarray(np.stack(channels, axis=2).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


# What no small picture meets.
LIMITS = Limits(max_image_bytes=1 << 26, max_image_pixels=1 << 26, max_image_frames=1000, max_jpeg_scans=20)


def decoded(file: bytes, **limits: int) -> npt.NDArray[np.uint8]:
    return decode(np.frombuffer(file, np.uint8), replace(LIMITS, **limits))


def error_of(file: bytes, **limits: int) -> str:
    with pytest.raises(InvalidImageError) as caught:
        decoded(file, **limits)
    return str(caught.value)


def chunk(kind: bytes, content: bytes) -> bytes:
    """One chunk of a PNG file: length, type, content, checksum."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


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


@pytest.mark.parametrize("file", [JPEG, PNG], ids=["JPEG", "PNG"])
@pytest.mark.parametrize("padding", [1, 7, 100_000])
def test_zeros_after_the_end_change_nothing(file: bytes, padding: int) -> None:
    np.testing.assert_array_equal(decoded(file + bytes(padding)), decoded(file))


@pytest.mark.parametrize("file", [JPEG, PNG], ids=["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("padding", [0, 100_000])
def test_truncated_files_are_refused_padded_or_not(file: bytes, share: float, padding: int) -> None:
    message = error_of(file[: int(len(file) * share)] + bytes(padding))
    assert message.startswith("truncated: expected a ")


def test_header_gives_the_size_before_decoding() -> None:
    assert [(header.width, header.height) for header in map(read_header, (JPEG, PNG))] == [(61, 43)] * 2


@pytest.mark.parametrize(
    ("file", "limits", "message"),
    [
        (b"", {}, "empty: expected an image file, got 0 bytes"),
        (bytes(1000), {}, "empty: expected an image file, got 0 bytes"),
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
            PNG[:8] + chunk(b"tEXt", b"a") + PNG[8:],
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
    still = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    animation = chunk(b"acTL", struct.pack(">II", 1, 0)) + chunk(
        b"fcTL", struct.pack(">IIIIIHHBB", 0, 1, 1, 0, 0, 1, 1, 0, 0)
    )
    pixels = chunk(b"IDAT", zlib.compress(b"\0abc"))
    file = PNG[:8] + still + animation + pixels + chunk(b"Vcxx", b"x") + chunk(b"IEND", b"")
    assert error_of(file).startswith("corrupt: expected a PNG file with known critical chunks, got b'Vcxx' at byte ")
    without = PNG[:8] + still + animation + pixels + chunk(b"IEND", b"")
    assert decoded(without).tolist() == [[[97, 98, 99]]]


def test_a_chunk_longer_than_the_file_allocates_nothing() -> None:
    assert error_of(PNG[:33] + b"\xff\xff\xff\xf0tEXtxxxx").startswith(
        "truncated: expected a PNG file up to its chunk IEND"
    )


def test_compressed_text_is_not_unpacked() -> None:
    """Each of these chunks of 8 kB unpacks to 8 MB."""
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(8 << 20), 9))
    started = time.process_time()
    image = decoded(PNG[:33] + bomb * 400 + PNG[33:])
    assert time.process_time() - started < 1  # 26 s where it reaches libpng
    np.testing.assert_array_equal(image, decoded(PNG))


@pytest.mark.parametrize(
    "file",
    [
        b"\xff\xd8" + b"\xff" * (60 << 20),
        b"\xff\xd8\xff" + b"\xff\xd0" * (30 << 20),
        PNG[:33] + chunk(b"IDAT", b"") * 5_000_000,
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


def test_shared_odd_files_give_pixels_or_the_documented_error(shared_odd: list[Path]) -> None:
    codes = {"empty", "not_an_image", "truncated", "corrupt", "too_many_bytes", "too_many_pixels", "unsupported"}
    for path in shared_odd:
        assert outcome(path.read_bytes()) in {"pixels", *codes}, path.name


def outcome(file: bytes) -> str:
    try:
        image = decoded(file, max_image_bytes=1 << 26, max_image_pixels=10**8)
    except InvalidImageError as error:
        return str(error).split(":")[0]
    return "pixels" if image.dtype == np.uint8 and image.ndim == 3 else f"{image.dtype} {image.shape}"
