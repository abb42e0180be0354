"""From RGB pixels to the network's input: resize, crop, normalize. The same arithmetic as in training."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTER_SUPPORT = {"bilinear": 1, "bicubic": 2}  # source pixels to either side of a tap's centre, where nothing shrinks


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
    resized_height, resized_width = resize_size * height // shorter, resize_size * width // shorter
    top, left = round((resized_height - crop_size) / 2), round((resized_width - crop_size) / 2)
    y_scale, x_scale = height / resized_height, width / resized_width
    y_start, y_end = top * y_scale, (top + crop_size) * y_scale
    x_start, x_end = left * x_scale, (left + crop_size) * x_scale
    # The two passes apart, rows first: left to itself Pillow takes the cheaper order, and as each pass rounds and clips
    # to 8 bits, the other order gives other pixels than resizing the whole image does.
    margin = FILTER_SUPPORT[interpolation] * max(y_scale, 1) + 1
    first_row, last_row = max(int(y_start - margin), 0), min(int(y_end + margin) + 1, height)
    rows = Image.fromarray(image[first_row:last_row])
    resampling = RESAMPLING[interpolation]
    narrow = rows.resize((crop_size, rows.height), resampling, box=(x_start, 0, x_end, rows.height))
    box = (0, y_start - first_row, crop_size, y_end - first_row)
    return np.asarray(narrow.resize((crop_size, crop_size), resampling, box=box))


def normalization_table(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Tabulate (level / 255 - mean) / std for the 256 levels of each channel.

    `mean` and `std` hold R, G, B on the [0, 1] scale. Returns float32 (3, 256), rounded once from float64.
    Source: torchvision/transforms/_presets.py, ImageClassification.forward.
    """
    levels = np.arange(256) / 255
    table: npt.NDArray[np.float32] = (levels - np.reshape(mean, (3, 1))) / np.reshape(std, (3, 1))
    return table.astype(np.float32)


def normalize(image: npt.NDArray[np.uint8], table: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """Write each pixel's entry of `table` to `out`, channels first.

    Takes uint8 (H, W, 3) and the float32 (3, 256) of `normalization_table`; fills float32 (3, H, W).
    """
    for channel in range(3):
        # Levels of uint8 are always inside the table: "clip" only spares take() its bounds check and buffering.
        np.take(table[channel], image[:, :, channel], out=out[channel], mode="clip")
