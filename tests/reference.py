"""The reference preprocessing, written once from torchvision's documentation with Pillow and plain numpy; it shares no
code with python_models/."""

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps


def reference_pixels(file: bytes) -> Image.Image:
    """What a training's loader sees: opened by Pillow, upright, RGB."""
    image = Image.open(io.BytesIO(file))
    return ImageOps.exif_transpose(image).convert("RGB")


def reference_crop(image: Image.Image, interpolation: str = "bilinear") -> npt.NDArray[np.uint8]:
    """torchvision's Resize(256, antialias=True), CenterCrop(224): the whole image is resized first."""
    resize_size, crop_size = 256, 224
    width, height = image.size
    if width <= height:
        size = (resize_size, int(resize_size * height / width))
    else:
        size = (int(resize_size * width / height), resize_size)
    resampling = Image.Resampling[interpolation.upper()]
    if interpolation == "bicubic":  # clips between its passes: Pillow's order before 13, which takes the cheaper one
        resized = image.resize((size[0], height), resampling).resize(size, resampling)
    else:
        resized = image.resize(size, resampling)
    left, top = round((size[0] - crop_size) / 2.0), round((size[1] - crop_size) / 2.0)
    return np.asarray(resized.crop((left, top, left + crop_size, top + crop_size)))


def reference_input(file: bytes, mean: list[float], std: list[float]) -> npt.NDArray[np.float64]:
    """The network's input, (3, 224, 224), in float64."""
    pixels = reference_crop(reference_pixels(file)).astype(np.float64) / 255
    return ((pixels - mean) / std).transpose(2, 0, 1)
