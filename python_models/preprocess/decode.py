"""From the bytes of an image file to upright RGB pixels, or to a clear error. The formats are in formats/."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import InvalidImageError
from .formats import Header, read_header
from .orientation import upright


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one file may cost; all are applied to its header, before any pixel is decoded."""

    max_image_bytes: int
    max_image_pixels: int  # width x height; fewer where a format takes more than 8 bytes a pixel to decode
    max_image_frames: int  # of an animation, of which the first is decoded
    max_jpeg_scans: int  # of a progressive JPEG of max_image_pixels; a smaller one may have more in proportion


def decode(file: npt.NDArray[np.uint8], limits: Limits, exif_orientation: str = "apply") -> npt.NDArray[np.uint8]:
    """Decode one file of any format of formats/, the first picture of several, alpha dropped.

    Takes uint8 (bytes,); zeros after the end of the file, as a batch pads it, are no part of it. `exif_orientation` is
    "apply", which turns the picture upright, or "ignore".
    Returns uint8 (H, W, 3) in R, G, B order.
    Raises InvalidImageError with one of the codes empty, too_many_bytes, not_an_image, too_many_pixels, truncated,
    corrupt, unsupported.
    """
    return decode_pixels(read_file(file, limits), exif_orientation)


def read_file(file: npt.NDArray[np.uint8], limits: Limits) -> Header:
    """The first half of `decode`: all that is to be known of a file before it costs memory, checked."""
    if len(file) > limits.max_image_bytes and file[limits.max_image_bytes :].any():
        raise InvalidImageError("too_many_bytes", f"expected at most {limits.max_image_bytes} bytes, got {file.size}")
    header = read_header(file[: limits.max_image_bytes].tobytes())
    check_cost(header, limits)
    return header


def decode_pixels(header: Header, exif_orientation: str) -> npt.NDArray[np.uint8]:
    """The second half of `decode`."""
    image = header.decode(header)
    if image.dtype != np.uint8 or image.shape != (header.height, header.width, 3):
        raise InvalidImageError(
            "corrupt",
            f"expected {header.width} x {header.height} pixels as in the header, got {image.dtype} {image.shape}",
        )
    return upright(image, header.orientation) if exif_orientation == "apply" else image


def check_cost(header: Header, limits: Limits) -> None:
    """Raise InvalidImageError where there is no pixel, or decoding would take more memory or time than allowed."""
    size = f"{header.width} x {header.height}"
    if header.width * header.height < 1:
        raise InvalidImageError("corrupt", f"expected at least 1 x 1 pixel, got {size}")
    if header.cost_pixels > limits.max_image_pixels:
        most = int(limits.max_image_pixels / max(header.cost, 1))
        raise InvalidImageError(
            "too_many_pixels", f"expected at most {most} pixels of a {header.format} file of this kind, got {size}"
        )
    if header.coded_pixels * header.scans > limits.max_jpeg_scans * limits.max_image_pixels:
        raise InvalidImageError(
            "too_many_pixels",
            f"expected at most {limits.max_jpeg_scans} scans of {limits.max_image_pixels} pixels, "
            f"got {header.scans} of {size}",
        )
    if header.frames > limits.max_image_frames:
        raise InvalidImageError(
            "too_many_pixels", f"expected at most {limits.max_image_frames} frames, got {header.frames}"
        )
