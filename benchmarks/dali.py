"""`python -m benchmarks.dali FOLDER`: `preprocess` beside NVIDIA DALI on the CPU, a thread each.

DALI is no dependency of the project: `pip install nvidia-dali-cuda120` first; no GPU is needed. It decodes, resizes
with antialiasing, crops and normalizes in batches of 32. Both take turns, by processor time.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from export.calibration import service_settings
from python_models.preprocess.config import FileConfig

from .errors import BenchmarkError
from .preprocess import readable_files, time_service
from .reference import reference_crop, reference_pixels
from .running import positive, run_measurement

BATCH_SIZE = 32
JPEG = b"\xff\xd8"  # DALI reads fewer formats, and other pixels from some


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.dali", description="Time `preprocess` against DALI on the CPU, a thread each."
    )
    result.add_argument("images", type=Path, metavar="FOLDER", help="of 32 or more JPEG files")
    result.add_argument("--rounds", type=positive, default=9, metavar="N", help="default: %(default)s")
    return result


def measure(options: argparse.Namespace) -> int:
    config = service_settings()
    files = [file for file in readable_files(options.images, config) if file[:2].tobytes() == JPEG]
    files = files[: len(files) // BATCH_SIZE * BATCH_SIZE]
    if not files:
        raise BenchmarkError(f"{options.images}: expected at least {BATCH_SIZE} JPEG files, got fewer")
    run_batch, batch = dali_pipeline(config), []
    for start in range(0, len(files), BATCH_SIZE):
        batch.append(files[start : start + BATCH_SIZE])
    differences = [difference for one in batch for difference in levels_off(one, run_batch(one), config)]
    rounds = [(time_ours(files, config), time_dali(batch, run_batch)) for _ in range(options.rounds)]
    print(table(rounds, len(files), differences))
    return 0


def dali_pipeline(config: FileConfig) -> Callable[[list[npt.NDArray[np.uint8]]], npt.NDArray[np.float32]]:
    """A function from encoded files to float32 (N, 3, crop, crop)."""
    try:
        from nvidia.dali import fn, pipeline_def, types
    except ImportError as error:
        cure = "pip install nvidia-dali-cuda120"
        raise BenchmarkError(f"nvidia.dali: expected it to be installed, got {error}: {cure}") from error

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, device_id=None, prefetch_queue_depth=1)  # type: ignore[untyped-decorator]
    def define() -> Any:
        image = fn.decoders.image(fn.external_source(name="files", dtype=types.UINT8, ndim=1), device="cpu")
        image = fn.resize(
            image, resize_shorter=config.resize_size, interp_type=types.INTERP_LINEAR, antialias=True, device="cpu"
        )
        return fn.crop_mirror_normalize(
            image,
            crop=(config.crop_size, config.crop_size),
            mean=[255 * value for value in config.mean],
            std=[255 * value for value in config.std],
            dtype=types.FLOAT,
            output_layout="CHW",
        )

    pipeline = define()
    pipeline.build()

    def run_batch(files: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        pipeline.feed_input("files", files)
        (output,) = pipeline.run()
        return output.as_array()  # type: ignore[no-any-return]

    return run_batch


def levels_off(
    files: Sequence[npt.NDArray[np.uint8]], normalized: npt.NDArray[np.float32], config: FileConfig
) -> list[float]:
    """How far each file's pixels are from Pillow's crop on average, in levels of 255."""
    std, mean = np.array(config.std)[:, None, None], np.array(config.mean)[:, None, None]
    found = []
    for file, row in zip(files, normalized, strict=True):
        crop = reference_crop(
            reference_pixels(file.tobytes()),
            resize_size=config.resize_size,
            crop_size=config.crop_size,
            interpolation=config.interpolation,
        )
        found.append(float(np.abs((row * std + mean) * 255 - crop.transpose(2, 0, 1)).mean()))
    return found


def time_ours(files: Sequence[npt.NDArray[np.uint8]], config: FileConfig) -> float:
    """Seconds a file."""
    return statistics.fmean(sum(time_service(file, config)) for file in files)


def time_dali(
    batches: Sequence[list[npt.NDArray[np.uint8]]],
    run_batch: Callable[[list[npt.NDArray[np.uint8]]], npt.NDArray[np.float32]],
) -> float:
    """Seconds of processor time a file, of all its threads."""
    started = time.process_time()
    for batch in batches:
        run_batch(batch)
    return (time.process_time() - started) / sum(map(len, batches))


def table(rounds: Sequence[tuple[float, float]], files: int, differences: Sequence[float]) -> str:
    ours_s, dali_s = (statistics.median(one[side] for one in rounds) for side in (0, 1))
    ratios = [dali / ours for ours, dali in rounds]
    off = (
        f"{statistics.median(differences):.2f} levels of 255 from Pillow's pixels, in the worst {max(differences):.2f}"
    )
    return (
        f"{files} JPEG files, a thread each, medians of {len(rounds)} rounds by turns\n"
        f"preprocess  {1000 * ours_s:.2f} ms a file, {1 / ours_s:.0f} images/s\n"
        f"DALI        {1000 * dali_s:.2f} ms a file, {1 / dali_s:.0f} images/s; the median file is on average {off}\n"
        f"times as fast as DALI: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


if __name__ == "__main__":
    sys.exit(main())
