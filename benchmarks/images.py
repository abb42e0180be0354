"""The images that a measurement sends: those of a folder that the service takes."""

import sys
from pathlib import Path

from PIL import Image

from client import ClassificationError, PipelineClient
from client.command_line.sources import Sources
from export.calibration import evenly_spaced

from .errors import BenchmarkError
from .running import sample_photos

PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")  # of scikit-image
LONGER_SIDES = (320, 500, 800, 1600)  # pixels: thumbnails, ImageNet's usual size, web pages, larger photographs
JPEG_QUALITY = 90


def write_photos_of_several_sizes(folder: Path) -> Path:
    """Write scikit-image's photographs into `folder`, each as JPEG of each of LONGER_SIDES; return the folder."""
    for name in PHOTOS:
        photo = Image.open(sample_photos() / name).convert("RGB")
        for side in LONGER_SIDES:
            scale = side / max(photo.size)
            width, height = (round(scale * each) for each in photo.size)
            resized = photo.resize((width, height), Image.Resampling.BICUBIC)
            resized.save(folder / f"{Path(name).stem}-{side}.jpg", quality=JPEG_QUALITY)
    return folder


def served_images(url: str, folder: Path, most: int = sys.maxsize) -> list[Path]:
    """The image files under `folder` that the service at `url` classifies, of more than `most` evenly spaced ones.

    Prints what is taken and what is left out. Raises BenchmarkError where nothing is left.
    """
    if not folder.is_dir():
        raise BenchmarkError(f"images: expected a folder, got {folder}")
    found = [source.image for source in Sources([str(folder)]) if isinstance(source.image, Path)]
    files = evenly_spaced(found, most)
    try:
        with PipelineClient(url) as client:
            results = client.classify(files)
    except ClassificationError as error:
        raise BenchmarkError(f"images of {folder}: expected them to be classified, got: {error}") from error
    taken = [file for file, result in zip(files, results, strict=True) if not result.error]
    refused = [f"{file}: {result.error}" for file, result in zip(files, results, strict=True) if result.error]
    reason = f", for instance {refused[0]}" if refused else ""
    if not taken:
        raise BenchmarkError(f"images: expected some that can be classified in {folder}, got {len(found)}{reason}")
    megabytes = sum(file.stat().st_size for file in taken) / 1e6
    print(f"images: {len(taken)} of the {len(found)} in {folder}, {megabytes:.1f} MB; {len(refused)} refused{reason}")
    return taken
