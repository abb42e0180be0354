"""The images of a folder, as the service would hand them to the network: decoded and cropped by its own code."""

import contextlib
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
    """Read the images under `folder`, in the order of the paths: uint8 (N, 3, crop_size, crop_size), R, G, B.

    Files that the service would refuse are left out. Raises ExportError where fewer than MIN_IMAGES remain.
    """
    return np.stack([pixels for _, pixels in read_images(folder, transform)])


def image_files(folder: Path, transform: Transform) -> list[Path]:
    """The files that `read_pixels` takes."""
    return [path for path, _ in read_images(folder, transform)]


def read_images(folder: Path, transform: Transform) -> list[tuple[Path, npt.NDArray[np.uint8]]]:
    settings = service_settings()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    read = []
    for path in evenly_spaced(paths, MAX_IMAGES):
        with contextlib.suppress(InvalidImageError):
            read.append((path, read_image(path, transform, settings)))
    if len(read) < MIN_IMAGES:
        raise ExportError(
            f"--calibration {folder}: expected a folder with at least {MIN_IMAGES} images, got {len(read)} in "
            f"{len(paths)} files"
        )
    return read


def service_settings() -> FileConfig:
    """The limits and the orientation of `preprocess` in model_repository/."""
    config = read_configs(TRACKED_REPOSITORY)["preprocess"]
    return FileConfig.from_model_config(json_format.MessageToJson(config, preserving_proto_field_name=True))


def read_image(path: Path, transform: Transform, settings: FileConfig) -> npt.NDArray[np.uint8]:
    """One crop, uint8 (3, crop_size, crop_size); raises InvalidImageError where the service would refuse the file."""
    image = decode(np.fromfile(path, np.uint8), settings.limits, settings.exif_orientation)
    crop = resize_and_center_crop(
        image,
        resize_size=transform.resize_size,
        crop_size=transform.crop_size,
        interpolation=transform.interpolation,
    )
    out = np.empty((3, transform.crop_size, transform.crop_size), np.uint8)
    channels_first(crop, out)
    return out


def evenly_spaced(paths: list[Path], most: int) -> list[Path]:
    """At most `most` of them, spread over the whole list."""
    count = min(len(paths), most)
    return [paths[index * len(paths) // count] for index in range(count)]
