"""From the bytes of an image file to RGB pixels, or to a clear error. JPEG and PNG."""

import os
import struct

import numpy as np
import numpy.typing as npt

os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")  # Triton runs several stubs: one thread each, or they thrash
os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")  # a caller's damaged file is answered, not also logged as a warning
import cv2

JPEG_SIGNATURE = b"\xff\xd8\xff"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class InvalidImageError(ValueError):
    """The file is at fault, not the service. The text reads `code: what was expected and what arrived`."""


def decode(file: npt.NDArray[np.uint8], *, max_image_bytes: int, max_image_pixels: int) -> npt.NDArray[np.uint8]:
    """Decode one JPEG or PNG file, upright by its EXIF orientation, alpha dropped.

    Takes uint8 (bytes,); zeros after the end of the file, as a batch pads it, are no part of it.
    Returns uint8 (H, W, 3) in R, G, B order.
    Raises InvalidImageError with one of the codes empty, too_many_bytes, not_an_image, too_many_pixels, truncated,
    corrupt, unsupported. The size is read from the header, before any pixel is decoded.
    """
    # Neither format ends in a zero byte. Left in place, the padding would hide that a file is truncated: decoders
    # take the zeros for image data and fill the rest of the picture with gray.
    data = file.tobytes().rstrip(b"\0")
    if not data:
        raise InvalidImageError("empty: expected an image file, got 0 bytes")
    if len(data) > max_image_bytes:
        raise InvalidImageError(f"too_many_bytes: expected at most {max_image_bytes} bytes, got {len(data)}")
    width, height = image_size(data)
    if width * height > max_image_pixels:
        raise InvalidImageError(f"too_many_pixels: expected at most {max_image_pixels} pixels, got {width} x {height}")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    except cv2.error as error:
        raise _decoding_failed(data) from error
    if image is None:
        raise _decoding_failed(data)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InvalidImageError(f"unsupported: expected 8-bit colour or gray, got {image.dtype} {image.shape}")
    return image  # type: ignore[return-value]  # cv2's own annotation is wider than what was just checked


def image_size(data: bytes) -> tuple[int, int]:
    """Read (width, height) in pixels, before any EXIF rotation, from the header of a JPEG or PNG file.

    Raises InvalidImageError: not_an_image, truncated or corrupt.
    """
    if data.startswith(PNG_SIGNATURE):
        return _png_size(data)
    if data.startswith(JPEG_SIGNATURE):
        return _jpeg_size(data)
    raise InvalidImageError(
        f"not_an_image: expected a JPEG or PNG file, got {len(data)} bytes starting {data[:8].hex(' ')}"
    )


def _png_size(data: bytes) -> tuple[int, int]:
    # Source: PNG specification, 11.2.1: IHDR is the first chunk; its width and height follow length and type.
    if len(data) < 24:
        raise InvalidImageError(f"truncated: expected a PNG header of 24 bytes, got {len(data)}")
    if data[12:16] != b"IHDR":
        raise InvalidImageError(f"corrupt: expected a PNG that begins with IHDR, got {data[12:16].hex(' ')}")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int]:
    # Source: ITU-T T.81, annex B: segments of marker, length (itself included) and content, up to the frame header
    # SOFn (length, precision, height, width). C4, C8 and CC share its range but are not frame headers.
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            raise InvalidImageError(f"corrupt: expected a JPEG marker at byte {at}, got {data[at]:02x}")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without content
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    raise InvalidImageError(f"truncated: expected a JPEG frame header, got {len(data)} bytes without one")


def _decoding_failed(data: bytes) -> InvalidImageError:
    name, end = ("PNG", b"IEND\xaeB`\x82") if data.startswith(PNG_SIGNATURE) else ("JPEG", b"\xff\xd9")
    if data.endswith(end):
        return InvalidImageError(f"corrupt: expected a readable {name} file, got {len(data)} bytes that do not decode")
    return InvalidImageError(
        f"truncated: expected a {name} file up to its end marker {end.hex(' ')}, "
        f"got {len(data)} bytes ending {data[-len(end) :].hex(' ')}"
    )
