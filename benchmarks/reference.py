"""The reference preprocessing, written once from torchvision's documentation with Pillow and plain numpy; it shares no
code with python_models/. The tests and `python -m benchmarks.parity` compare with it."""

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps


def reference_pixels(file: bytes) -> Image.Image:
    """What a training's loader sees: opened by Pillow, upright, RGB. 16-bit gray, which Pillow clips, is scaled.

    Raises what Pillow raises for a file that it cannot read.
    """
    opened = Image.open(io.BytesIO(file))
    image = ImageOps.exif_transpose(opened)
    # Pillow reads 16-bit gray PNG and TIFF as I;16, and that of PGM as I, which elsewhere is 32-bit.
    if image.mode.startswith("I;16") or (opened.format, opened.mode) == ("PPM", "I"):
        image = Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
    return image.convert("RGB")


def resized_size(size: tuple[int, int], resize_size: int) -> tuple[int, int]:
    """Width and height after torchvision's Resize of the shorter side; the longer one is truncated."""
    width, height = size
    if width <= height:
        return resize_size, int(resize_size * height / width)
    return int(resize_size * width / height), resize_size


def reference_crop(
    image: Image.Image, *, resize_size: int, crop_size: int, interpolation: str
) -> npt.NDArray[np.uint8]:
    """torchvision's Resize(resize_size, interpolation, antialias=True), CenterCrop(crop_size).

    The whole image is resized first, in the order of passes that Pillow takes by itself. Returns uint8
    (crop_size, crop_size, 3).
    """
    resized = image.resize(resized_size(image.size, resize_size), Image.Resampling[interpolation.upper()])
    left, top = (round((side - crop_size) / 2.0) for side in resized.size)
    return np.asarray(resized.crop((left, top, left + crop_size, top + crop_size)))


def reference_normalized(
    crop: npt.NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]
) -> npt.NDArray[np.float64]:
    """(crop / 255 - mean) / std in float64, channels first: uint8 (H, W, 3) to (3, H, W)."""
    return ((crop.astype(np.float64) / 255 - mean) / std).transpose(2, 0, 1)


def reference_input(
    file: bytes,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    resize_size: int = 256,
    crop_size: int = 224,
    interpolation: str = "bilinear",
) -> npt.NDArray[np.float64]:
    """The network's input, (3, crop_size, crop_size), in float64."""
    image = reference_pixels(file)
    crop = reference_crop(image, resize_size=resize_size, crop_size=crop_size, interpolation=interpolation)
    return reference_normalized(crop, mean, std)
