"""Making the graph that torch's exporter wrote small and readable, without changing what it computes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime

# What stands at each place of a layer's inputs after the first.
ROLES = {1: "weight", 2: "bias"}
OWN_DOMAINS = ("", "ai.onnx")  # of ONNX's own operators
MIN_IR_VERSION = 4  # the first in which constants need not be inputs too


def tidy(path: Path, classes: int) -> None:
    """Fold constants, drop copies, and name each folded weight after its layer: layer1.0.conv1.weight.

    `classes` stands in the shape of the output afterwards, also where torch could not follow it through the network.
    """
    model = fold_constants(path)
    name_initializers(model.graph)
    used = {node.domain for node in model.graph.node}
    imports = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = classes
    onnx.save(model, path)


def in_plain_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without what old exporters write and converters stumble over; it computes the same.

    Constants are no inputs, which takes IR version 4, and ONNX's own operators are imported once, by the domain "".
    """
    plain = copy_of(model)
    constants = {tensor.name for tensor in plain.graph.initializer}
    inputs = [value for value in plain.graph.input if value.name not in constants]
    del plain.graph.input[:]
    plain.graph.input.extend(inputs)
    plain.ir_version = max(plain.ir_version, MIN_IR_VERSION)
    for node in plain.graph.node:
        if node.domain == "ai.onnx":
            node.ClearField("domain")
    others = [entry for entry in plain.opset_import if entry.domain not in OWN_DOMAINS]
    version = opset_of(plain)
    own = [onnx.helper.make_opsetid("", version)] if version else []
    del plain.opset_import[:]
    plain.opset_import.extend([*own, *others])
    return plain


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    return result


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators that a graph is written in."""
    return max((entry.version for entry in model.opset_import if entry.domain in OWN_DOMAINS), default=0)


def fold_constants(path: Path) -> onnx.ModelProto:
    """Let ONNX Runtime write the graph after its basic optimizations, which leave nothing but ONNX's own operators."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder, "folded.onnx"))
        options.log_severity_level = 3  # errors; else it warns that the file may be for this machine only
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def name_initializers(graph: onnx.GraphProto) -> None:
    """Give weights that torch numbered (`onnx::Conv_193`) the name of the first layer that uses them.

    A folded batch norm makes new weights of a convolution's, which is why they have lost their names.
    """
    numbered = {tensor.name for tensor in graph.initializer if tensor.name.startswith("onnx::")}
    taken = {tensor.name for tensor in graph.initializer} | {name for node in graph.node for name in node.output}
    names: dict[str, str] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in numbered and name not in names:
                names[name] = unique_name(f"{layer_of(node.name)}.{ROLES.get(place, f'input{place}')}", taken)
                taken.add(names[name])
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def layer_of(node_name: str) -> str:
    """The module's path as in the state_dict: `/layer1/layer1.0/conv1/Conv` is of layer1.0.conv1."""
    path: list[str] = []
    for part in node_name.strip("/").split("/")[:-1]:
        if path and part.startswith(path[-1] + "."):
            path.pop()  # torch repeats a container's name in front of its children's numbers
        path.append(part)
    return ".".join(path) or node_name.strip("/")


def unique_name(wanted: str, taken: set[str]) -> str:
    """Return `wanted`, or `wanted_1` and so on where that is taken."""
    return next(name for name in candidates(wanted) if name not in taken)


def candidates(wanted: str) -> Iterator[str]:
    yield wanted
    number = 0
    while True:
        number += 1
        yield f"{wanted}_{number}"
