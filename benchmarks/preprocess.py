"""`python -m benchmarks.preprocess [FOLDER]`: what `preprocess` takes for a photograph, by steps, and what Pillow does.

CPU time of one thread, in this process, without Triton, with the settings of model_repository/. Pillow's side
normalizes by numpy. Both take turns photograph by photograph; the medians of the rounds count.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from export.calibration import service_settings
from python_models.preprocess.config import FileConfig
from python_models.preprocess.decode import decode
from python_models.preprocess.errors import InvalidImageError
from python_models.preprocess.transforms import normalization_table, normalize, resize_and_center_crop

from .errors import BenchmarkError
from .reference import reference_crop, reference_pixels
from .running import positive, run_measurement, sample_photos

STEPS = ("decode", "resize", "normalize")
TARGET_RATIO = 1.35

Times = tuple[float, float, float]  # seconds of the three steps


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.preprocess",
        description="Time decode, resize and normalize of `preprocess` against Pillow, in one thread.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument(
        "images", type=Path, nargs="?", metavar="FOLDER", help="of photographs (default: those of scikit-image)"
    )
    result.add_argument("--rounds", type=positive, default=9, metavar="N", help="default: %(default)s")
    return result


def measure(options: argparse.Namespace) -> int:
    config = service_settings()
    files = readable_files(options.images or sample_photos(), config)
    rounds = [measure_round(files, config) for _ in range(options.rounds)]
    print(table(len(files), rounds))
    return 0


def readable_files(folder: Path, config: FileConfig) -> list[npt.NDArray[np.uint8]]:
    """Read the files that are images: uint8 (bytes,) each."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size > 0:
            file = np.fromfile(path, np.uint8)
            try:
                decode(file, config.limits)
            except InvalidImageError:
                continue
            files.append(file)
    if not files:
        raise BenchmarkError(f"{folder}: expected image files, got none that `preprocess` reads")
    return files


def measure_round(files: Sequence[npt.NDArray[np.uint8]], config: FileConfig) -> tuple[Times, Times]:
    """Return the mean times of a file: of the service and of Pillow."""
    served, reference = [], []
    for file in files:
        served.append(time_service(file, config))
        reference.append(time_reference(file, config))
    return mean_times(served), mean_times(reference)


def time_service(file: npt.NDArray[np.uint8], config: FileConfig) -> Times:
    table = normalization_table(config.mean, config.std)
    out = np.empty((3, config.crop_size, config.crop_size), np.float32)
    started = time.thread_time()
    image = decode(file, config.limits, config.exif_orientation)
    decoded = time.thread_time()
    crop = resize_and_center_crop(
        image, resize_size=config.resize_size, crop_size=config.crop_size, interpolation=config.interpolation
    )
    resized = time.thread_time()
    normalize(crop, table, out)
    return decoded - started, resized - decoded, time.thread_time() - resized


def time_reference(file: npt.NDArray[np.uint8], config: FileConfig) -> Times:
    mean, std = np.array(config.mean, np.float32), np.array(config.std, np.float32)
    started = time.thread_time()
    image = reference_pixels(file.tobytes())
    image.load()  # Pillow decodes when it must
    decoded = time.thread_time()
    crop = reference_crop(
        image, resize_size=config.resize_size, crop_size=config.crop_size, interpolation=config.interpolation
    )
    resized = time.thread_time()
    # in float32 and contiguous, as a network takes it
    np.ascontiguousarray(((crop.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1))
    return decoded - started, resized - decoded, time.thread_time() - resized


def mean_times(times: Sequence[Times]) -> Times:
    decode_s, resize_s, normalize_s = (statistics.fmean(step) for step in zip(*times, strict=True))
    return decode_s, resize_s, normalize_s


def table(files: int, rounds: Sequence[tuple[Times, Times]]) -> str:
    """Milliseconds a file, medians of the rounds, and the ratio of each round's sums."""
    lines = [f"{files} files, one thread, medians of {len(rounds)} rounds", f"{'ms a file':10}  service   Pillow"]
    for step, name in enumerate(STEPS):
        served, reference = (statistics.median(single[side][step] for single in rounds) for side in (0, 1))
        lines.append(f"{name:10}  {1000 * served:7.3f}  {1000 * reference:7.3f}")
    served, reference = (statistics.median(sum(single[side]) for single in rounds) for side in (0, 1))
    lines.append(f"{'all':10}  {1000 * served:7.3f}  {1000 * reference:7.3f}")
    ratios = [sum(reference) / sum(served) for served, reference in rounds]
    verdict = "met" if statistics.median(ratios) >= TARGET_RATIO else "missed"
    lines.append(
        f"times as fast as Pillow: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"target {TARGET_RATIO} or more: {verdict}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
