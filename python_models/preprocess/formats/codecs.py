"""The two libraries that turn a file, whose header was checked, into pixels."""

import io
import logging
import warnings

import numpy as np
import numpy.typing as npt
from PIL import AvifImagePlugin, Image

from ..errors import InvalidImageError
from ..opencv import cv2
from .header import Header, unsupported

AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # Triton runs several stubs: one thread each
logging.getLogger("PIL").setLevel(logging.CRITICAL)  # a caller's damaged file is answered, not also logged
warnings.filterwarnings("ignore", module="PIL")
Image.MAX_IMAGE_PIXELS = None  # the limit is this project's own, applied to the header

# What Pillow reads, and only the writer of the file knows how to show.
UNKNOWN_RANGES = {"I": "signed or 32-bit integers", "F": "floating-point numbers", "LAB": "Lab colours"}
BAND = 256  # rows
MEMORY_PER_PIXEL = 8  # bytes, at most, to decode a file of the cost 1


def by_opencv(header: Header) -> npt.NDArray[np.uint8]:
    """Decode by OpenCV: JPEG, PNG, WebP and run-length BMP, where it is fast and its pixels are Pillow's."""
    try:
        image = cv2.imdecode(np.frombuffer(header.data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise does_not_decode(header) from error
    if image is None:
        raise does_not_decode(header)
    return image  # type: ignore[return-value]  # cv2's own annotation is wider than what decode() checks


def by_pillow(header: Header) -> npt.NDArray[np.uint8]:
    """Decode by Pillow, which reads more variants than OpenCV; alpha is dropped, as its convert("RGB") does.

    Gray of more than 8 bits keeps its highest 8: Pillow's own conversion would clip it to near white.
    """
    try:
        with Image.open(io.BytesIO(header.data), formats=[header.format]) as image:
            image.load()
            if image.mode in UNKNOWN_RANGES:
                raise unsupported(header.format, "gray, RGB or CMYK of up to 16 bits", UNKNOWN_RANGES[image.mode])
            return _to_array(image, header.sample_bits)
    except (InvalidImageError, MemoryError):
        raise
    except Exception as error:  # for damaged files SyntaxError, ValueError and others, besides OSError
        raise does_not_decode(header) from error


def _to_array(image: Image.Image, sample_bits: int) -> npt.NDArray[np.uint8]:
    """Convert band by band: at once it would take three more copies of the picture."""
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top in range(0, image.height, BAND):
        band = image.crop((0, top, image.width, min(top + BAND, image.height)))
        if image.mode.startswith("I;16"):
            pixels[top : top + BAND] = (np.asarray(band) >> sample_bits - 8)[:, :, np.newaxis]
        else:
            pixels[top : top + BAND] = np.asarray(band.convert("RGB"))
    return pixels


def does_not_decode(header: Header) -> InvalidImageError:
    """Raises MemoryError instead where there is not the memory to decode the file, which OpenCV does not tell apart."""
    np.empty((header.height, header.width, MEMORY_PER_PIXEL), np.uint8)
    return InvalidImageError(
        "corrupt", f"expected a readable {header.format} file, got {len(header.data)} bytes that do not decode"
    )
