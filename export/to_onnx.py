"""From a torch module to an ONNX file, and the check of an ONNX file against what it was made from."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch

from .comparison import normalized
from .errors import ExportError, first_line
from .recipes import Transform
from .tidy import opset_of as opset_of
from .tidy import tidy

OPSET = 17  # read by the ONNX Runtime of every Triton release from 22.12 on
INPUT_NAME, OUTPUT_NAME = "input", "logits"
CHECKED_BATCHES = (1, 2, 7)
# Two float32 engines sum in different orders: 1e-6 of the largest logit is ordinary, a wrong layer errs by 1e-1.
MAX_RELATIVE_DIFFERENCE = 1e-4

FloatArray = npt.NDArray[np.float32]
PixelArray = npt.NDArray[np.uint8]
Network = Callable[[FloatArray], FloatArray]  # normalized images (N, 3, H, W) to (N, classes)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far an ONNX file may be from what it was made from, and what to do where it is farther."""

    most: float = MAX_RELATIVE_DIFFERENCE  # max |a - b| / max |b|
    cure: str = ""  # ends the message


OF_FLOAT32 = Tolerance()


def write_onnx(module: torch.nn.Module, crop_size: int, path: Path) -> None:
    """Export `module` with input float32 (N, 3, crop_size, crop_size) and output float32 (N, classes), N dynamic.

    Raises ExportError where the module does not answer such images with one such tensor, or torch cannot export it.
    """
    example = torch.zeros(2, 3, crop_size, crop_size)
    classes = count_classes(module, example)
    with warnings.catch_warnings():
        # The exporter by tracing is deprecated, but torch is pinned, and it folds the batch norms and keeps names.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
                (example,),
                path,
                input_names=[INPUT_NAME],
                output_names=[OUTPUT_NAME],
                dynamic_axes={INPUT_NAME: {0: "batch"}, OUTPUT_NAME: {0: "batch"}},
                opset_version=OPSET,
                dynamo=False,
            )
        except Exception as error:  # torch has no common base class for what its exporter cannot do
            raise ExportError(
                f"network: expected one that torch.onnx.export traces, got {type(error).__name__}: "
                f"{first_line(error)}: export it to ONNX yourself and use --onnx"
            ) from error
    tidy(path, classes)
    onnx.checker.check_model(path, full_check=True)


def count_classes(module: torch.nn.Module, images: torch.Tensor) -> int:
    """Run the module once on images (N, 3, H, W) and return the classes of its answer (N, classes)."""
    what = f"network: expected one that answers float32 {tuple(images.shape)} with one tensor ({len(images)}, classes)"
    try:
        with torch.inference_mode():
            logits = module(images)
    except Exception as error:  # a module may raise anything
        reason = str(error).strip().splitlines() or [type(error).__name__]
        last = reason[-1]  # TorchScript puts its traceback in front
        raise ExportError(f"{what}, got: {last}: is --crop-size that of its training?") from error
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2 or len(logits) != len(images):
        got = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ExportError(f"{what}, got {got}: wrap it in a module that returns the scores alone")
    return logits.shape[1]


def run_torch(module: torch.nn.Module, images: FloatArray) -> FloatArray:
    """Run the module in one thread: torch sums in an order that depends on their number, ONNX Runtime does not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            return module(torch.from_numpy(images)).numpy()  # type: ignore[no-any-return]
    finally:
        torch.set_num_threads(threads)


def sample_pixels(size: int, batch: int, seed: int = 0) -> PixelArray:
    """Draw random pixels; returns (batch, size, size, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)


def normalized_images(pixels: PixelArray, transform: Transform) -> FloatArray:
    """Normalize pixels (N, H, W, 3) as `preprocess` does; returns (N, 3, H, W)."""
    return normalized(pixels.transpose(0, 3, 1, 2), transform)


def sample_images(transform: Transform, batch: int) -> FloatArray:
    """Normalized random pixels, (batch, 3, crop_size, crop_size)."""
    return normalized_images(sample_pixels(transform.crop_size, batch), transform)


def measure_difference(network: Network, transform: Transform, path: Path, tolerance: Tolerance = OF_FLOAT32) -> float:
    """Run the ONNX file and what it was made from at batches 1, 2 and 7; return the largest max |a - b| / max |b|.

    A graph that takes uint8 gets the pixels themselves, the network always their normalization. Raises ExportError,
    where the difference is above the tolerance.
    """
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (graph_input,), (output,) = session.get_inputs(), session.get_outputs()
    differences = []
    for batch in CHECKED_BATCHES:
        pixels = sample_pixels(transform.crop_size, batch)
        images = normalized_images(pixels, transform)
        takes_pixels = graph_input.type == "tensor(uint8)"
        fed = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if takes_pixels else images
        try:
            expected = network(images)
            (actual,) = session.run([output.name], {graph_input.name: fed})
        except Exception as error:  # ONNX Runtime has no common base class
            raise ExportError(
                f"{path.name}: expected a network for any batch, got a failure at batch {batch}: "
                f"{first_line(error)}: export it again with a dynamic batch, no shape in it fixed"
            ) from error
        if not np.isfinite(expected).all() or not expected.any():
            raise ExportError("weights: expected a network whose outputs are finite and not all zero, got another")
        if actual.shape != expected.shape:
            raise ExportError(f"{path.name}: expected outputs {expected.shape}, got {actual.shape}")
        differences.append(float(np.abs(actual - expected).max() / np.abs(expected).max()))
    if not all(difference <= tolerance.most for difference in differences):  # so that NaN fails too
        raise ExportError(
            f"{path.name}: expected outputs within {tolerance.most:g} of those of what it was made from at "
            f"batches {CHECKED_BATCHES}, got {differences}{tolerance.cure}"
        )
    return max(differences)


def check_activation(activation: str, outputs: FloatArray) -> None:
    """Raise ExportError where a network's outputs (N, classes) show that another activation was meant.

    Rows of probabilities would be flattened by a second softmax, and logits are no scores; neither would be an error.
    """
    are_scores = bool((outputs >= 0).all() and (outputs <= 1).all())
    if activation == "none" and not are_scores:
        raise ExportError(
            f"--activation none: expected a network whose outputs are scores from 0 to 1, got {outputs.min():.3g} to "
            f"{outputs.max():.3g}: use softmax (one class is right) or sigmoid (each for itself)"
        )
    add_up = bool(np.allclose(outputs.sum(axis=1), 1, atol=1e-3))
    if activation != "none" and are_scores and add_up and outputs.shape[1] > 1:
        raise ExportError(
            f"--activation {activation}: expected a network that gives logits, got one whose outputs are probabilities "
            "already, each row with the sum 1: use --activation none"
        )
