"""From the bytes of an image file to the network's input: as users write it, and by the service's own code."""

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.transforms import normalization_table, normalize, resize_and_center_crop

RESIZE_SIZE, CROP_SIZE = 256, 224  # pixels
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MEAN_ARRAY, STD_ARRAY = np.array(MEAN, np.float32), np.array(STD, np.float32)
TABLE = normalization_table(MEAN, STD)
LIMITS = Limits(max_image_bytes=1 << 26, max_image_pixels=1 << 26, max_image_frames=1000, max_jpeg_scans=20)

Transform = Callable[[bytes], npt.NDArray[np.float32]]


def pillow(file: bytes) -> npt.NDArray[np.float32]:
    """What most servers have: Pillow, then numpy. Returns float32 (3, CROP_SIZE, CROP_SIZE)."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    shorter = min(image.size)
    width, height = (RESIZE_SIZE * side // shorter for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - CROP_SIZE) / 2), round((height - CROP_SIZE) / 2)
    image = image.crop((left, top, left + CROP_SIZE, top + CROP_SIZE))
    pixels = np.asarray(image, np.float32) / 255
    standardized: npt.NDArray[np.float32] = (pixels - MEAN_ARRAY) / STD_ARRAY
    return standardized.transpose(2, 0, 1)


def ours(file: bytes) -> npt.NDArray[np.float32]:
    """The same by the functions of `preprocess`. Returns float32 (3, CROP_SIZE, CROP_SIZE)."""
    image = decode(np.frombuffer(file, np.uint8), LIMITS)
    crop = resize_and_center_crop(image, resize_size=RESIZE_SIZE, crop_size=CROP_SIZE, interpolation="bilinear")
    out = np.empty((3, CROP_SIZE, CROP_SIZE), np.float32)
    normalize(crop, TABLE, out)
    return out


TRANSFORMS: dict[str, Transform] = {"pillow": pillow, "ours": ours}
