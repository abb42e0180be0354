"""Rounding a layer's weights to 8 bits so that its outputs stay near, not each weight by itself."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from numpy.lib.stride_tricks import sliding_window_view

MAX_INPUTS = 256  # of a layer that is rounded so: the time grows with the square, and the first layers matter most
STEPS = 127  # from zero to the largest weight of an output channel; ONNX Runtime's symmetric int8
DAMPING = 0.01  # of the mean energy of the inputs, added to each: steadies the inverse where inputs are alike
PATCHES = 64  # of each image

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def round_together(weights: Floats, moments: Doubles) -> Floats:
    """Round (out, in) to multiples of a 127th of each row's largest weight; return float32 (out, in).

    `moments` (in, in) are those of the inputs, the mean of x x^T. The error of each weight is passed on to the weights
    not yet rounded, as the inputs go together: the first convolution of a network sees smooth images, and there the
    errors of one by one add up. The largest weight of a row stays as it is, so that the grid does.
    Source: Frantar et al. 2022, GPTQ, algorithm 1.
    """
    rest = weights.astype(np.float64)
    largest = np.abs(weights).argmax(axis=1)
    scale = np.maximum(np.abs(rest).max(axis=1), np.finfo(np.float32).tiny) / STEPS
    damping = DAMPING * np.trace(moments) / len(moments) + np.finfo(np.float32).tiny
    inverse = np.linalg.inv(moments + damping * np.eye(len(moments)))
    passed_on = np.linalg.cholesky(inverse).T
    rounded = np.empty_like(rest)
    for column in range(len(moments)):
        nearest = np.clip(np.round(rest[:, column] / scale), -STEPS, STEPS) * scale
        rounded[:, column] = np.where(largest == column, weights[:, column], nearest)
        error = (rest[:, column] - rounded[:, column]) / passed_on[column, column]
        rest[:, column:] -= np.outer(error, passed_on[column, column:])
    return rounded.astype(np.float32)


def is_rounded_together(node: onnx.NodeProto, shape: tuple[int, ...]) -> bool:
    """Whether `node` is a plain convolution of images whose weights, of `shape`, see few enough inputs."""
    if node.op_type != "Conv" or len(shape) != 4 or math.prod(shape[1:]) > MAX_INPUTS:
        return False
    attributes = attributes_of(node)
    dilated = set(attributes.get("dilations", [1])) != {1}
    return attributes.get("group", 1) == 1 and not dilated and attributes.get("auto_pad", b"NOTSET") == b"NOTSET"


def patches_of(node: onnx.NodeProto, kernel: tuple[int, int], image: Floats) -> Floats:
    """What a convolution sees of `image` (1, C, H, W) at up to PATCHES places, evenly spaced: (places, C * kernel)."""
    attributes = attributes_of(node)
    top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
    down, across = attributes.get("strides", [1, 1])
    padded: Floats = np.pad(image[0], ((0, 0), (top, bottom), (left, right)))
    windows: Any = sliding_window_view(padded, kernel, axis=(1, 2))  # type: ignore[call-overload]  # numpy 1.26's types
    windows = windows[:, ::down, ::across]
    _, height, width = windows.shape[:3]
    places = np.linspace(0, height * width - 1, min(PATCHES, height * width)).astype(int)
    seen: Floats = windows[:, places // width, places % width]  # (C, places, kernel height, kernel width)
    return seen.transpose(1, 0, 2, 3).reshape(len(places), -1)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
