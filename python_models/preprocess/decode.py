"""From the bytes of an image file to RGB pixels, or to a clear error. JPEG and PNG."""

import os

import numpy as np
import numpy.typing as npt

from .errors import InvalidImageError
from .headers import Header, read_header

os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")  # Triton runs several stubs: one thread each, or they thrash
os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")  # a caller's damaged file is answered, not also logged as a warning
import cv2

# How often max_image_pixels may be gone over: the usual progressive JPEG has 10 scans, in CMYK 18; one that is made to
# keep a process busy for minutes has hundreds.
MAX_SCANS_OF_MAX_PIXELS = 20


def decode(file: npt.NDArray[np.uint8], *, max_image_bytes: int, max_image_pixels: int) -> npt.NDArray[np.uint8]:
    """Decode one JPEG or PNG file, upright by its EXIF orientation, alpha dropped.

    Takes uint8 (bytes,); zeros after the end of the file, as a batch pads it, are no part of it.
    Returns uint8 (H, W, 3) in R, G, B order.
    Raises InvalidImageError with one of the codes empty, too_many_bytes, not_an_image, too_many_pixels, truncated,
    corrupt, unsupported. The limits are applied to the header, before any pixel is decoded.
    """
    # Neither format ends in a zero byte. Left in place, the padding would hide that a file is truncated: decoders
    # take the zeros for image data and fill the rest of the picture with gray.
    data = file.tobytes().rstrip(b"\0")
    if not data:
        raise InvalidImageError("empty: expected an image file, got 0 bytes")
    if len(data) > max_image_bytes:
        raise InvalidImageError(f"too_many_bytes: expected at most {max_image_bytes} bytes, got {len(data)}")
    header = read_header(data)
    check_cost(header, max_image_pixels)
    try:
        image = cv2.imdecode(np.frombuffer(header.data, np.uint8), cv2.IMREAD_COLOR_RGB)
    except cv2.error as error:
        raise _decoding_failed(header) from error
    if image is None:
        raise _decoding_failed(header)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InvalidImageError(f"unsupported: expected 8-bit colour or gray, got {image.dtype} {image.shape}")
    if sorted(image.shape[:2]) != sorted((header.height, header.width)):  # sorted: EXIF may have turned it
        raise InvalidImageError(
            f"corrupt: expected {header.width} x {header.height} pixels as in the header, got {image.shape[:2]}"
        )
    return image  # type: ignore[return-value]  # cv2's own annotation is wider than what was just checked


def check_cost(header: Header, max_image_pixels: int) -> None:
    """Raise InvalidImageError, too_many_pixels, where decoding would take more memory or time than allowed."""
    pixels, size = header.width * header.height, f"{header.width} x {header.height}"
    if pixels > max_image_pixels:
        raise InvalidImageError(f"too_many_pixels: expected at most {max_image_pixels} pixels, got {size}")
    most = MAX_SCANS_OF_MAX_PIXELS * max_image_pixels
    if pixels * header.scans > most:
        raise InvalidImageError(
            f"too_many_pixels: expected at most {most} pixels in all scans, got {size} in {header.scans} scans"
        )


def _decoding_failed(header: Header) -> InvalidImageError:
    if header.name == "JPEG" and not header.data.endswith(b"\xff\xd9"):
        return InvalidImageError(
            "truncated: expected a JPEG file up to its end marker ff d9, "
            f"got {len(header.data)} bytes ending {header.data[-2:].hex(' ')}"
        )
    return InvalidImageError(
        f"corrupt: expected a readable {header.name} file, got {len(header.data)} bytes that do not decode"
    )
