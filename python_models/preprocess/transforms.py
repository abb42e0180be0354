"""From RGB pixels to the network's input: resize, crop, normalize. The same arithmetic as in training."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from .opencv import cv2

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTER_SUPPORT = {"bilinear": 1, "bicubic": 2}  # source pixels to either side of a tap's centre, where nothing shrinks
MAX_EXTRA = 16  # resized pixels to either side of the crop


def resize_and_center_crop(
    image: npt.NDArray[np.uint8], *, resize_size: int, crop_size: int, interpolation: str
) -> npt.NDArray[np.uint8]:
    """Resize the shorter side to `resize_size` with antialiasing, then cut the middle `crop_size` square.

    Takes and returns uint8 (H, W, 3); the result is (crop_size, crop_size, 3). Only what the crop needs is computed,
    so an extreme shape (1 x 60000) costs no more than an ordinary one.
    Source: torchvision.transforms.functional, _compute_resized_output_size and center_crop: the longer side is
    truncated to an integer, the crop's corner rounded to the nearest (half to even).
    """
    height, width = image.shape[:2]
    shorter = min(height, width)
    new_height, new_width = resize_size * height // shorter, resize_size * width // shorter
    support, resampling = FILTER_SUPPORT[interpolation], RESAMPLING[interpolation]
    rows, columns = span(height, new_height, crop_size, support), span(width, new_width, crop_size, support)

    def resize_columns(picture: Image.Image) -> Image.Image:
        box = (columns.start, 0, columns.end, picture.height)
        return picture.resize((columns.size, picture.height), resampling, box)

    def resize_rows(picture: Image.Image) -> Image.Image:
        box = (0, rows.start, picture.width, rows.end)
        return picture.resize((picture.width, rows.size), resampling, box)

    part = Image.fromarray(np.ascontiguousarray(image[rows.first : rows.last, columns.first : columns.last]))
    # The two passes apart: each rounds to 8 bits, so their order shows, and Pillow decides it by the whole image.
    if rows_come_first(height, width, new_height, new_width):
        resized = np.asarray(resize_columns(resize_rows(part)))
    else:
        resized = np.asarray(resize_rows(resize_columns(part)))
    return resized[rows.skip : rows.skip + crop_size, columns.skip : columns.skip + crop_size]


def rows_come_first(height: int, width: int, new_height: int, new_width: int) -> bool:
    """Whether Pillow 13 resizes the height of such an image before its width: where it shrinks much more.

    Found by comparing its output with both orders; tests/test_transforms.py compares again.
    """
    return new_height < height and height - new_height > 2 * (width - new_width)


@dataclass(frozen=True)
class Span:
    """What is resized along one axis so that the crop is in it."""

    first: int  # of the source's pixels
    last: int
    start: float  # of the box that becomes `size` pixels, counted from `first`
    end: float
    size: int
    skip: int  # resized pixels in front of the crop


@lru_cache(maxsize=1024)
def span(length: int, new_length: int, crop_size: int, support: int) -> Span:
    """Choose a stretch of the source that holds the crop, and a little more, so that Pillow's taps are exact.

    Pillow takes the box in float32: the taps of a box that is right to seven digits are not those of the whole image,
    and where two neighbours are mixed half and half the result rounds the other way. Among the boxes that begin and end
    up to MAX_EXTRA resized pixels outside the crop there is nearly always one whose start and length are float32
    numbers to more than nine digits.
    """
    scale = length / new_length
    margin = support * max(scale, 1) + 1
    corner = round((new_length - crop_size) / 2)
    starts = np.arange(max(corner - MAX_EXTRA, 0), corner + 1)
    ends = np.arange(corner + crop_size, min(corner + crop_size + MAX_EXTRA, new_length) + 1)
    first = max(int(starts[0] * scale - margin), 0)
    exact_starts, sizes = (starts * scale - first)[:, np.newaxis], ends - starts[:, np.newaxis]
    box_starts = exact_starts.astype(np.float32)
    box_ends = box_starts + (sizes * scale).astype(np.float32)
    errors = np.abs(box_starts - exact_starts) + np.abs((box_ends - box_starts) - sizes * scale)  # as Pillow subtracts
    costs = np.maximum(errors, 1e-8) * (1 + 0.05 * (sizes - crop_size))  # of equal ones, the shortest
    i, j = np.unravel_index(np.argmin(costs), costs.shape)
    start, end = int(starts[i]), int(ends[j])
    moved = max(int(start * scale - margin), 0) - first
    return Span(
        first=first + moved,
        last=min(int(end * scale + margin) + 1, length),
        start=float(box_starts[i, 0]) - moved,
        end=float(box_ends[i, j]) - moved,
        size=end - start,
        skip=corner - start,
    )


def normalization_table(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Tabulate (level / 255 - mean) / std for the 256 levels of each channel.

    `mean` and `std` hold R, G, B on the [0, 1] scale. Returns float32 (1, 256, 3), rounded once from float64.
    Source: torchvision/transforms/_presets.py, ImageClassification.forward.
    """
    levels = np.arange(256).reshape(1, 256, 1) / 255
    table: npt.NDArray[np.float64] = (levels - np.asarray(mean)) / np.asarray(std)
    return table.astype(np.float32)


def normalize(image: npt.NDArray[np.uint8], table: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """Write each pixel's entry of `table` to `out`, channels first.

    Takes uint8 (H, W, 3) and the float32 (1, 256, 3) of `normalization_table`; fills float32 (3, H, W).
    """
    cv2.split(cv2.LUT(image, table), list(out))


def channels_first(image: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
    """Write uint8 (H, W, 3) to uint8 `out` (3, H, W), for a network that normalizes by itself."""
    cv2.split(image, list(out))
