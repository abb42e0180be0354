"""Triton glue for `preprocess` and `preprocess_frames`: requests in, responses out.

The one input tells the two apart: `raw_image`, the bytes of a file, is decoded (decode.py, formats/); `frame` already
is RGB. The first output tells what the classifier takes: `normalized`, float32, or `pixels`, uint8, where its graph
normalizes. What happens to the pixels is in transforms.py, the settings are in config.py.
"""

import asyncio  # noqa: F401  # the stub imports it in the first execute(), which takes 20 ms (python_backend, pb_stub.cc)
import json
import traceback
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from .config import CONFIGS, FileConfig
from .decode import decode
from .errors import InvalidImageError
from .transforms import channels_first, normalization_table, normalize, resize_and_center_crop
from .warmup import sample_file, sample_frame

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
        self._preprocess(SAMPLES[self.input_name]())  # warm-up; an image that the limits refuse warms up less

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]  # one response per request, in order

    def _respond(self, request: Any) -> Any:
        try:
            images = pb_utils.get_input_tensor_by_name(request, self.input_name).as_numpy()
            model_inputs, errors = self._preprocess(images)
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

    def _preprocess(self, images: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[Any], npt.NDArray[np.object_]]:
        """Files (N, longest) or frames (N, H, W, 3) to the output (N, 3, crop, crop) and error (N, 1)."""
        shape = (len(images), 3, self.config.crop_size, self.config.crop_size)
        model_inputs = np.zeros(shape, OUTPUT_TYPES[self.output_name])
        errors = np.full((len(images), 1), b"", dtype=object)
        for row, image in enumerate(images):
            try:
                self._to_model_input(image, model_inputs[row])
            except InvalidImageError as error:  # the caller's fault: its own row only, never a neighbour's
                errors[row, 0] = f"preprocess: {error.code}: image {row}: {error.detail}".encode()
        return model_inputs, errors

    def _to_model_input(self, image: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> None:
        config = self.config
        if isinstance(config, FileConfig):
            image = decode(image, config.limits, config.exif_orientation)
        else:
            check_frame(image, config.max_image_pixels)
        cropped = resize_and_center_crop(
            image, resize_size=config.resize_size, crop_size=config.crop_size, interpolation=config.interpolation
        )
        if self.output_name == "pixels":
            channels_first(cropped, out)
        else:
            normalize(cropped, self.table, out)


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
