"""A user's own ONNX graph: read and checked, and fitted to what `preprocess` hands over.

`preprocess` hands over FP32 (N, 3, H, W). A graph that takes anything else (NHWC as from TensorFlow, pixels as uint8,
half precision) gets one or two nodes in front that make it of that; one whose output is not FP32 gets one behind.
All else stays as it is, names included.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from .check.releases import OURS, newest_onnx
from .errors import ExportError, first_line
from .recipes import Transform
from .tidy import copy_of, unique_name
from .to_onnx import OF_FLOAT32, FloatArray, Tolerance, opset_of

INPUT_TYPES: dict[str, type[np.number[Any]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}
OUTPUT_TYPES = ("tensor(float)", "tensor(float16)", "tensor(double)")
NCHW_TO_NHWC = (0, 2, 3, 1)
# Half precision has 11 significant bits, 5e-4. Of the casts that are added to its own ONNX Runtime makes fewer, so the
# fitted graph rounds at other places: 1e-4 to 4e-4 of the largest output over two convolutions.
MAX_HALF_DIFFERENCE = 2e-3
HALF_CURE = ": export it in float32, and give --precision fp16 for half precision"


@dataclass(frozen=True, kw_only=True)
class OwnGraph:
    """A graph with one image input and one output of scores, and what was found out about it."""

    model: onnx.ModelProto
    session: onnxruntime.InferenceSession  # of the model as it came
    input_name: str
    output_name: str
    input_type: type[np.number[Any]]
    channels_last: bool
    size: int | None  # pixels, both sides; None where any size is taken
    is_float32_output: bool
    is_half: bool  # float16 goes in or comes out

    @property
    def tolerance(self) -> Tolerance:
        """How near the fitted graph must be to it."""
        return Tolerance(most=MAX_HALF_DIFFERENCE, cure=HALF_CURE) if self.is_half else OF_FLOAT32

    @property
    def transform_defaults(self) -> dict[str, Any]:
        """What the graph itself says about its transform: its size, and that uint8 means pixels from 0 to 255."""
        size = {"crop_size": self.size} if self.size else {}
        pixels = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255, 1 / 255, 1 / 255)}
        return {**size, **(pixels if self.input_type is np.uint8 else {})}

    def check_transform(self, transform: Transform) -> None:
        """Raise ExportError where a chosen transform contradicts the graph."""
        for name, value in self.transform_defaults.items():
            if getattr(transform, name) != value:
                raise ExportError(
                    f"transform: expected {name} {value}, because the graph's input '{self.input_name}' takes "
                    f"{'pixels from 0 to 255 as uint8' if name != 'crop_size' else f'{value} x {value} pixels'}, "
                    f"got {getattr(transform, name)}: leave {name} away"
                )

    def run(self, images: FloatArray) -> FloatArray:
        """Run the graph as it came on float32 (N, 3, H, W), laid out for it by numpy; returns (N, classes)."""
        fitted = images.astype(self.input_type)
        fitted = fitted.transpose(NCHW_TO_NHWC) if self.channels_last else fitted
        (output,) = self.session.run([self.output_name], {self.input_name: np.ascontiguousarray(fitted)})
        return np.asarray(output, np.float32)


def read_graph(path: Path) -> OwnGraph:
    """Read an ONNX file; raise ExportError, with the way out, where it cannot become the pipeline's classifier."""
    model = load(path)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no common base class
        raise ExportError(
            f"{path.name}: expected a graph that ONNX Runtime {onnxruntime.__version__} loads, got: {first_line(error)}"
        ) from error
    graph_input, output = the_only(session.get_inputs(), "input", path), the_only(session.get_outputs(), "output", path)
    channels_last, size = image_layout(graph_input, path)
    check_scores(output, path)
    return OwnGraph(
        model=model,
        session=session,
        input_name=graph_input.name,
        output_name=output.name,
        input_type=INPUT_TYPES[graph_input.type],
        channels_last=channels_last,
        size=size,
        is_float32_output=output.type == "tensor(float)",
        is_half="tensor(float16)" in (graph_input.type, output.type),
    )


def load(path: Path) -> onnx.ModelProto:
    """Read the file, with its external data, and check the versions that the ONNX Runtime in Triton knows."""
    try:
        model = onnx.load(path)
    except Exception as error:  # of protobuf, of onnx, or of the system
        raise ExportError(
            f"--onnx: expected an ONNX file, got {path}, which cannot be read: {first_line(error)}"
        ) from error
    if not model.graph.node:
        raise ExportError(f"--onnx: expected an ONNX file, got {path}, which has no graph")
    version, newest_opset, newest_ir = newest_onnx(OURS)
    opset = opset_of(model)
    if opset > newest_opset or model.ir_version > newest_ir:
        raise ExportError(
            f"{path.name}: expected at most opset {newest_opset} and IR version {newest_ir}, which the ONNX Runtime "
            f"{version} of Triton {OURS} reads, got {opset} and {model.ir_version}: export it with opset 17 "
            "(torch: opset_version=17, tf2onnx: --opset 17)"
        )
    return model


def the_only(tensors: list[Any], kind: str, path: Path) -> Any:
    if len(tensors) != 1:
        names = ", ".join(tensor.name for tensor in tensors)
        raise ExportError(
            f"{path.name}: expected one {kind}, got {len(tensors)} ({names}): cut the graph to one with "
            "onnx.utils.extract_model, or export it again without the others"
        )
    (tensor,) = tensors
    if not tensor.shape or isinstance(tensor.shape[0], int):
        raise ExportError(
            f"{path.name}: expected {kind} '{tensor.name}' with a dynamic batch as first dimension, got "
            f"{list(tensor.shape)}: export it again (torch: dynamic_axes={{'{tensor.name}': {{0: 'batch'}}}}; tf2onnx: "
            "an input_signature with None)"
        )
    return tensor


def image_layout(tensor: Any, path: Path) -> tuple[bool, int | None]:
    """Whether the input is NHWC, and its height and width in pixels; raise ExportError where it takes no RGB images."""
    shape = list(tensor.shape)
    what = f"{path.name}: expected input '{tensor.name}'"
    if tensor.type not in INPUT_TYPES:
        raise ExportError(f"{what} of float or uint8, got {tensor.type}: export it again with a float input")
    if len(shape) != 4 or 3 not in (shape[1], shape[3]):
        raise ExportError(
            f"{what} to be RGB images, (N, 3, H, W) or (N, H, W, 3), got {shape}: export it again with 3 channels"
        )
    channels_last = shape[1] != 3
    height, width = shape[1:3] if channels_last else shape[2:]
    sizes = {size for size in (height, width) if isinstance(size, int)}
    if len(sizes) > 1:
        raise ExportError(f"{what} to be square, as the crops are, got {shape}: export it again with a square input")
    return channels_last, next(iter(sizes), None)


def check_scores(tensor: Any, path: Path) -> None:
    """Raise ExportError unless the output is (N, classes) of a float type with a known number of classes."""
    if tensor.type not in OUTPUT_TYPES or len(tensor.shape) != 2 or not isinstance(tensor.shape[1], int):
        raise ExportError(
            f"{path.name}: expected output '{tensor.name}' to be float (N, classes) with a fixed number of classes, "
            f"got {tensor.type} {list(tensor.shape)}: export it again with that number in the shape"
        )


def fit(graph: OwnGraph, crop_size: int) -> tuple[onnx.ModelProto, list[str]]:
    """Make the graph take FP32 (N, 3, crop_size, crop_size) and give FP32.

    Returns the model, and what was added to it in words, for the manifest.
    """
    model = copy_of(graph.model)
    taken = all_names(model.graph)
    casts, transposes = graph.input_type is not np.float32, graph.channels_last
    changes = []
    if casts or transposes:
        new_input = add_in_front(model.graph, graph, crop_size, taken)
        steps = " and ".join(["cast"] * casts + ["transposed"] * transposes)
        element, layout = np.dtype(graph.input_type).name, "NHWC" if transposes else "NCHW"
        changes.append(f"input '{new_input}' (float32, NCHW) is {steps} to '{graph.input_name}' ({element}, {layout})")
    if not graph.is_float32_output:
        new_output = add_behind(model.graph, graph, taken)
        changes.append(f"'{graph.output_name}' is cast to output '{new_output}' (float32)")
    return model, changes


def add_in_front(graph: onnx.GraphProto, own: OwnGraph, crop_size: int, taken: set[str]) -> str:
    """Replace the input by a new one, from which nodes make the old; returns its name."""
    original = next(value for value in graph.input if value.name == own.input_name)
    old_type = original.type.tensor_type.elem_type
    name = unique_name("normalized", taken)
    tensor, nodes = name, []
    if own.input_type is not np.float32:
        target = unique_name(f"{name}_cast", taken) if own.channels_last else own.input_name
        nodes.append(onnx.helper.make_node("Cast", [tensor], [target], name="fit/Cast", to=old_type))
        tensor = target
    if own.channels_last:
        perm = list(NCHW_TO_NHWC)
        nodes.append(onnx.helper.make_node("Transpose", [tensor], [own.input_name], name="fit/Transpose", perm=perm))
    others = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *others])
    dims: list[str | int | None] = [batch_name(original), 3, crop_size, crop_size]
    graph.value_info.add().CopyFrom(original)
    original.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims))
    return name


def add_behind(graph: onnx.GraphProto, own: OwnGraph, taken: set[str]) -> str:
    """Replace the output by a new one, cast from the old; returns its name."""
    (original,) = graph.output
    name = unique_name(f"{own.output_name}_float32", taken)
    to = onnx.TensorProto.FLOAT
    graph.node.append(onnx.helper.make_node("Cast", [own.output_name], [name], name="fit/CastOutput", to=to))
    graph.value_info.add().CopyFrom(original)
    original.name, original.type.tensor_type.elem_type = name, to
    return name


def batch_name(value: onnx.ValueInfoProto) -> str:
    return value.type.tensor_type.shape.dim[0].dim_param or "batch"


def all_names(graph: onnx.GraphProto) -> set[str]:
    tensors = {value.name for value in [*graph.input, *graph.output, *graph.initializer, *graph.value_info]}
    return tensors | {name for node in graph.node for name in [*node.input, *node.output]}
