"""What is made of a checked float32 graph: fp16, int8, the normalization inside."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.transformers.float16 import convert_float_to_float16

from .calibration import read_pixels
from .comparison import Comparison, compare, normalized
from .conversion import Conversion
from .errors import ExportError, first_line
from .in_graph import normalize_in_graph
from .quantization import quantize
from .recipes import Transform
from .tidy import in_plain_form


def convert(path: Path, transform: Transform, activation: str, conversion: Conversion) -> dict[str, Any]:
    """Replace the float32 graph at `path` by what is asked for; return what the manifest says of it.

    Raises ExportError, and leaves `path` as it is, where int8 disagrees with fp32 too often.
    """
    try:
        model, described = converted(in_plain_form(onnx.load(path)), transform, activation, conversion)
        onnx.checker.check_model(model, full_check=True)
    except (ExportError, OSError):
        raise
    except Exception as error:  # onnx and ONNX Runtime have no common base class
        raise ExportError(
            f"{path.name}: expected a graph that can be converted ({conversion}), got {type(error).__name__}: "
            f"{first_line(error)}: export it again with opset 17, or leave these options away"
        ) from error
    onnx.save(model, path)
    return described


def converted(
    model: onnx.ModelProto, transform: Transform, activation: str, conversion: Conversion
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The graph that is asked for, from `model` in float32, and what the manifest says of it."""
    described: dict[str, Any] = {"precision": conversion.precision, "normalize_in_graph": conversion.normalize_in_graph}
    if conversion.precision == "fp16":
        model = tidied(convert_float_to_float16(model, keep_io_types=True))
    elif conversion.precision == "int8":
        model, comparison = make_int8(model, transform, activation, conversion)
        described["int8"] = comparison.described()
        print(f"int8 against fp32: {comparison}", flush=True)
        if comparison.speed_up <= 1:
            print("warning: int8 is not faster than fp32 on this machine: take fp32, or a CPU with VNNI", flush=True)
    if conversion.normalize_in_graph:
        normalize_in_graph(model, transform)
    return model, described


def tidied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the nodes in order and drop unused constants: conversions leave new nodes last and old constants behind."""
    used = {name for node in model.graph.node for name in node.input}
    for node in [node for node in model.graph.node if node.op_type == "Constant" and not used & set(node.output)]:
        model.graph.node.remove(node)
    result = ONNXModel(model)
    result.clean_initializers()
    result.topological_sort()
    return model


def make_int8(
    model: onnx.ModelProto, transform: Transform, activation: str, conversion: Conversion
) -> tuple[onnx.ModelProto, Comparison]:
    """Calibrate on one half of the images, judge on the other; raise ExportError below the agreement asked for."""
    if conversion.calibration is None:
        raise ExportError("--precision int8: expected --calibration FOLDER with some hundred images, got none")
    calibration, held_out = halves(read_pixels(conversion.calibration, transform))
    quantized = tidied(quantize(model, normalized(calibration, transform)))
    comparison = compare(model, quantized, normalized(held_out, transform), activation)
    if comparison.agreement < conversion.min_agreement:
        raise ExportError(
            f"--precision int8: expected fp32's {comparison.decision} on at least {conversion.min_agreement:.1%} of "
            f"the held-out images, got {comparison}: calibrate with more images, such as are served, or lower "
            "--min-agreement"
        )
    return quantized, comparison


def halves(pixels: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Every other image, so that folders sorted by class give both halves every class."""
    return pixels[::2], pixels[1::2]
