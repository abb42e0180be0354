"""What is known of a file before any of its pixels is decoded."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InvalidImageError

BUDGET_BYTES_PER_PIXEL = 8  # of max_image_pixels: what decoding may take at its peak


@dataclass(frozen=True, kw_only=True)
class Header:
    """A file whose structure is whole; `decode` turns `data` into uint8 (height, width, 3), R, G, B."""

    format: str
    width: int  # pixels, as stored
    height: int
    orientation: int = 1  # EXIF's 1 to 8: how the stored picture is to be turned
    frames: int = 1
    scans: int = 1  # of JPEG, also within TIFF: how often a decoder goes over pixels
    coded_pixels: int = 0  # over how many each time
    sample_bits: int = 16  # of a gray sample that has more than 8
    cost: float = 1  # what a pixel takes, in memory or time, as a share of what one of max_image_pixels may take
    data: bytes  # what the decoder needs of the file, and nothing else
    decode: "Callable[[Header], npt.NDArray[np.uint8]]"

    @property
    def cost_pixels(self) -> int:
        """What decoding takes, as a whole number of ordinary pixels, which compares with max_image_pixels."""
        return math.ceil(self.width * self.height * max(self.cost, 1))


def truncated(format: str, end: str, data: bytes) -> InvalidImageError:
    return InvalidImageError("truncated", f"expected a {format} file up to {end}, got {len(data)} bytes")


def corrupt(format: str, expected: str, got: object) -> InvalidImageError:
    return InvalidImageError("corrupt", f"expected a {format} file with {expected}, got {got}")


def unsupported(format: str, expected: str, got: object) -> InvalidImageError:
    return InvalidImageError("unsupported", f"expected a {format} file with {expected}, got {got}")
