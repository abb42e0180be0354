"""From a torch module to an ONNX file that is checked against it."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

from .errors import ExportError

OPSET = 17  # read by the ONNX Runtime of every Triton release from 22.12 on
INPUT_NAME, OUTPUT_NAME = "input", "logits"
CHECKED_BATCHES = (1, 2, 7)
# Two float32 engines sum in different orders: 1e-6 of the largest logit is ordinary, a wrong layer errs by 1e-1.
MAX_RELATIVE_DIFFERENCE = 1e-4


def write_onnx(module: torch.nn.Module, crop_size: int, path: Path) -> None:
    """Export `module` with input float32 (N, 3, crop_size, crop_size) and output float32 (N, classes), N dynamic."""
    example = torch.zeros(2, 3, crop_size, crop_size)
    with warnings.catch_warnings():
        # The exporter by tracing is deprecated, but torch is pinned, and it folds the batch norms and keeps names.
        warnings.simplefilter("ignore")
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
    onnx.checker.check_model(path, full_check=True)


def measure_difference(module: torch.nn.Module, crop_size: int, path: Path) -> float:
    """Run both at batches 1, 2 and 7; return the largest max |onnx - torch| / max |torch|.

    Raises ExportError above MAX_RELATIVE_DIFFERENCE.
    """
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(0)
    differences = []
    for batch in CHECKED_BATCHES:
        images = torch.randn(batch, 3, crop_size, crop_size, generator=generator)
        with torch.inference_mode():
            expected = module(images).numpy()
        if not np.isfinite(expected).all() or not expected.any():
            raise ExportError("weights: expected a network whose logits are finite and not all zero, got another")
        (actual,) = session.run([OUTPUT_NAME], {INPUT_NAME: images.numpy()})
        differences.append(float(np.abs(actual - expected).max() / np.abs(expected).max()))
    if not max(differences) <= MAX_RELATIVE_DIFFERENCE:  # so that NaN fails too
        raise ExportError(
            f"{path.name}: expected logits within {MAX_RELATIVE_DIFFERENCE:g} of torch's at batches {CHECKED_BATCHES}, "
            f"got {differences}"
        )
    return max(differences)
