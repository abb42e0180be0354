"""The images of a folder, as the service would hand them to the network: decoded and cropped by its own code."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from google.protobuf import json_format

from python_models.preprocess.config import FileConfig
from python_models.preprocess.decode import decode
from python_models.preprocess.errors import InvalidImageError
from python_models.preprocess.transforms import channels_first, resize_and_center_crop

from .errors import ExportError
from .recipes import Transform
from .repository import TRACKED_REPOSITORY, read_configs

MIN_IMAGES = 16
MAX_IMAGES = 1000  # of larger folders evenly spaced ones are taken: more change the ranges no further


def read_pixels(folder: Path, transform: Transform) -> npt.NDArray[np.uint8]:
    """Read every image under `folder`, in the order of the paths: uint8 (N, 3, crop_size, crop_size), R, G, B.

    Files that the service would refuse are left out. Raises ExportError where fewer than MIN_IMAGES remain.
    """
    settings = service_settings()
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    read = [pixels for path in evenly_spaced(paths, MAX_IMAGES) if (pixels := read_image(path, transform, settings))]
    if len(read) < MIN_IMAGES:
        raise ExportError(
            f"--calibration {folder}: expected a folder with at least {MIN_IMAGES} images, got {len(read)} in "
            f"{len(paths)} files"
        )
    return np.stack([crop for (crop,) in read])


def service_settings() -> FileConfig:
    """The limits and the orientation of `preprocess` in model_repository/."""
    config = read_configs(TRACKED_REPOSITORY)["preprocess"]
    return FileConfig.from_model_config(json_format.MessageToJson(config, preserving_proto_field_name=True))


def read_image(path: Path, transform: Transform, settings: FileConfig) -> list[npt.NDArray[np.uint8]]:
    """One crop, uint8 (3, crop_size, crop_size), or none where the file is no image that the service takes."""
    try:
        image = decode(np.fromfile(path, np.uint8), settings.limits, settings.exif_orientation)
    except InvalidImageError:
        return []
    crop = resize_and_center_crop(
        image,
        resize_size=transform.resize_size,
        crop_size=transform.crop_size,
        interpolation=transform.interpolation,
    )
    out = np.empty((3, transform.crop_size, transform.crop_size), np.uint8)
    channels_first(crop, out)
    return [out]


def evenly_spaced(paths: list[Path], most: int) -> list[Path]:
    """At most `most` of them, spread over the whole list."""
    count = min(len(paths), most)
    return [paths[index * len(paths) // count] for index in range(count)]
