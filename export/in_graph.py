"""The normalization as the first nodes of a graph, which then takes the 8-bit pixels themselves: a quarter of the bytes
of float32 between the steps."""

import numpy as np
import onnx

from .errors import ExportError
from .own_graph import all_names
from .recipes import Transform
from .tidy import unique_name

CHANNELS = 3


def normalize_in_graph(model: onnx.ModelProto, transform: Transform) -> None:
    """Put Cast, Mul and Add in front of a graph whose one input is float32 (N, 3, H, W); it keeps its name.

    The input then is uint8 and holds R, G, B from 0 to 255. Raises ExportError where the graph has another input.
    """
    graph = model.graph
    image = only_input(graph)
    tensor = image.type.tensor_type
    dims = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type != onnx.TensorProto.FLOAT or len(dims) != 4 or dims[1] != CHANNELS:
        raise ExportError(
            f"--normalize-in-graph: expected a graph whose input is FLOAT [N, {CHANNELS}, H, W], got "
            f"{onnx.TensorProto.DataType.Name(tensor.elem_type)} {dims}"
        )
    taken = all_names(graph)
    nodes, constants = normalization(image.name, transform, taken)
    normalized = nodes[-1].output[0]
    for node in graph.node:
        node.input[:] = [normalized if name == image.name else name for name in node.input]
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    graph.initializer.extend(constants)
    tensor.elem_type = onnx.TensorProto.UINT8


def only_input(graph: onnx.GraphProto) -> onnx.ValueInfoProto:
    """The one input that is no constant: old files list the weights among the inputs too."""
    constants = {tensor.name for tensor in graph.initializer}
    inputs: list[onnx.ValueInfoProto] = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise ExportError(f"graph: expected one input, got {[value.name for value in inputs]}")
    return inputs[0]


def normalization(
    source: str, transform: Transform, taken: set[str]
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The nodes from uint8 `source` to float32, and their constants, all tensors by names that are not `taken`.

    (level / 255 - mean) / std as one factor and one term a channel, rounded once from float64.
    Source: torchvision/transforms/_presets.py, ImageClassification.forward.
    """
    mean, std = np.asarray(transform.mean), np.asarray(transform.std)
    target, levels, scaled, *constant_names = (
        unique_name(f"{source}_normalized{what}", taken) for what in ("", "_levels", "_scaled", "_factor", "_term")
    )
    factor, term = (
        onnx.numpy_helper.from_array(value.astype(np.float32).reshape(1, CHANNELS, 1, 1), name)
        for name, value in zip(constant_names, (1 / (255 * std), -mean / std), strict=True)
    )
    node = onnx.helper.make_node
    nodes = [
        node("Cast", [source], [levels], name=f"{target}_cast", to=onnx.TensorProto.FLOAT),
        node("Mul", [levels, factor.name], [scaled], name=f"{target}_mul"),
        node("Add", [scaled, term.name], [target], name=f"{target}_add"),
    ]
    return nodes, [factor, term]
