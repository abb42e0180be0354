"""Triton glue for `preprocess` and `preprocess_frames`: requests in, responses out.

The one input tells the two apart: `raw_image`, the bytes of a file, is decoded (decode.py, formats/); `frame` already
is RGB. The first output tells what the classifier takes: `normalized`, float32, or `pixels`, uint8, where its graph
normalizes. What happens to the pixels is in transforms.py, the settings are in config.py.
"""

import asyncio  # noqa: F401  # the stub imports it in the first execute(), which takes 20 ms (python_backend, pb_stub.cc)
import json
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from .backlog import Backlog
from .budget import PixelBudget
from .config import CONFIGS, FileConfig
from .decode import decode_pixels, read_file
from .errors import CODES, InvalidImageError
from .metrics import BATCH_SIZES, SECONDS, Counter, Histogram, Publisher
from .transforms import channels_first, normalization_table, normalize, resize_and_center_crop
from .warmup import sample_file, sample_frame

OVERLOADED = "preprocess: overloaded: expected room behind this step, got too many requests that wait there"
SAMPLES = {"raw_image": sample_file, "frame": sample_frame}
OUTPUT_TYPES: dict[str, type[np.generic]] = {"normalized": np.float32, "pixels": np.uint8}


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        model_config = json.loads(args["model_config"])
        self.input_name = one_of(CONFIGS, "input", model_config["input"])
        outputs = [entry for entry in model_config["output"] if entry["name"] != "error"]
        self.output_name = one_of(OUTPUT_TYPES, "output besides error", outputs)
        self.config = CONFIGS[self.input_name].from_model_config(args["model_config"])
        check_output(model_config, self.config.crop_size)
        self.table = normalization_table(self.config.mean, self.config.std)
        self.budget = PixelBudget(self.config.max_image_pixels)
        self.backlog = Backlog()
        self.threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self.metrics = Metrics()
        _, errors = self._start(SAMPLES[self.input_name](), map)
        list(errors)  # warm-up, which fails the load where it fails; an image that the limits refuse warms up less
        self.publisher = Publisher(self.metrics.all, args["model_name"], new_family, pb_utils.Logger.log_error)

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request, in order. The images of a batch are worked on at the same time, on every core."""
        if self.backlog.is_too_long:
            return [_failed(OVERLOADED, pb_utils.TritonError.UNAVAILABLE) for _ in requests]
        inputs = [pb_utils.get_input_tensor_by_name(request, self.input_name).as_numpy() for request in requests]
        count = sum(map(len, inputs))
        self.metrics.batch.observe(count)
        self.metrics.bytes.add(sum(images.nbytes for images in inputs))
        is_lone = count == 1  # it need not wait for a thread
        started = [self._start(images, map if is_lone else self.threads.map) for images in inputs]
        return [self._respond(*one) for one in started]

    def finalize(self) -> None:
        self.threads.shutdown()
        self.publisher.stop()

    def _start(
        self, images: npt.NDArray[np.uint8], apply: Callable[..., Iterator[bytes]]
    ) -> tuple[npt.NDArray[Any], Iterator[bytes]]:
        """Files (N, longest) or frames (N, H, W, 3) to the output (N, 3, crop, crop), filled when the errors are read.

        `apply` is `map`, or one that works in threads.
        """
        shape = (len(images), 3, self.config.crop_size, self.config.crop_size)
        model_inputs = np.empty(shape, OUTPUT_TYPES[self.output_name])
        return model_inputs, apply(self._preprocess, range(len(images)), images, model_inputs)

    def _respond(self, model_inputs: npt.NDArray[Any], results: Iterator[bytes]) -> Any:
        try:
            errors = np.array(list(results), dtype=object).reshape(-1, 1)
        except Exception:  # what leaves execute() would fail every request of the batch, not only this one
            pb_utils.Logger.log_error(traceback.format_exc())
            return _failed(
                "preprocess: internal: expected no failure, got one that the server's log shows",
                pb_utils.TritonError.INTERNAL,
            )
        if errors.all():  # nothing to classify: the request itself is at fault
            return _failed(errors[0, 0].decode(), pb_utils.TritonError.INVALID_ARG)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(self.output_name, model_inputs), pb_utils.Tensor("error", errors)]
        )

    def _preprocess(self, row: int, image: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> bytes:
        """Fill `out` (3, crop, crop) and return b"", or the error of an image that cannot be classified."""
        outcome = "internal"
        try:
            self._to_model_input(image, out)
            outcome = "ok"
        except InvalidImageError as error:  # the caller's fault: its own row only, never a neighbour's
            outcome = error.code
            out[...] = 0
            return f"preprocess: {error.code}: image {row}: {error.detail}".encode()
        finally:
            self.metrics.images.add(1, outcome)
        return b""

    def _to_model_input(self, image: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> None:
        if isinstance(self.config, FileConfig):
            header = read_file(image, self.config.limits)
            with self.budget.spent(header.cost_pixels):
                with self.metrics.decode.timed():
                    decoded = decode_pixels(header, self.config.exif_orientation)
                self._transform(decoded, out)
        else:
            check_frame(image, self.config.max_image_pixels)
            self._transform(image, out)

    def _transform(self, image: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> None:
        config = self.config
        with self.metrics.transform.timed():
            cropped = resize_and_center_crop(
                image, resize_size=config.resize_size, crop_size=config.crop_size, interpolation=config.interpolation
            )
            if self.output_name == "pixels":
                channels_first(cropped, out)
            else:
                normalize(cropped, self.table, out)


class Metrics:
    """What is counted; the README describes it."""

    def __init__(self) -> None:
        self.images = Counter(
            "triton_classify_images_total", "Images by outcome", "outcome", ["ok", *CODES, "internal"]
        )
        self.bytes = Counter("triton_classify_image_bytes_total", "Bytes of images as they arrive")
        self.batch = Histogram("triton_classify_batch_images", "Images executed together", BATCH_SIZES)
        self.decode = Histogram("triton_classify_decode_seconds", "Decoding an image", SECONDS)
        self.transform = Histogram("triton_classify_resize_seconds", "Resizing and normalizing an image", SECONDS)
        self.all: list[Counter | Histogram] = [self.images, self.bytes, self.batch, self.decode, self.transform]


def new_family(name: str, description: str) -> Any:
    return pb_utils.MetricFamily(name=name, description=description, kind=pb_utils.MetricFamily.COUNTER)


def one_of(known: Iterable[str], kind: str, entries: list[dict[str, Any]]) -> str:
    """The name of the one entry of config.pbtxt, which is one of `known`."""
    names = [entry["name"] for entry in entries]
    if len(names) != 1 or names[0] not in known:
        raise ValueError(f"config.pbtxt {kind}: expected one, {' or '.join(known)}, got {names}")
    return str(names[0])


def check_output(config: dict[str, Any], crop_size: int) -> None:
    dims = [int(size) for size in config["output"][0]["dims"]]
    if dims != [3, crop_size, crop_size]:  # else each request would fail
        raise ValueError(f"config.pbtxt output: expected dims [3, {crop_size}, {crop_size}] by crop_size, got {dims}")


def check_frame(frame: npt.NDArray[np.uint8], max_image_pixels: int) -> None:
    """Raise InvalidImageError for a frame (H, W, 3) without pixels, or with more than resizing may take."""
    height, width = frame.shape[:2]
    if height * width == 0:
        raise InvalidImageError("empty", f"expected a frame of at least 1 x 1 pixel, got shape {list(frame.shape)}")
    if height * width > max_image_pixels:
        raise InvalidImageError(
            "too_many_pixels", f"expected at most {max_image_pixels} pixels, got {width} x {height}"
        )


def _failed(message: str, code: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))
