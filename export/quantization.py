"""Static 8-bit quantization by ONNX Runtime, with the four things that plain min-max calibration leaves to be had.

Weights are int8 per output channel, activations uint8 per tensor, in QDQ form. None of these costs any speed:

- An activation's range is the one with the least squared error, not from the lowest to the highest value ever seen: a
  rare outlier would take levels from all others.
- The weights of the first layers are rounded together (rounding.py): most of the error of plain rounding is the first
  convolution's.
- Rounding the weights shifts the mean of each channel's output; the biases take that back. Source: Nagel et al. 2019,
  Data-Free Quantization Through Weight Equalization and Bias Correction, section 4.2, here with measured means.
- The logits stay float32: with 256 levels the two best classes would often be equal.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx.numpy_helper import from_array, to_array
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorData, TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

from .errors import ExportError
from .in_graph import only_input
from .rounding import attributes_of, is_rounded_together, patches_of, round_together
from .tidy import copy_of, opset_of

QUANTIZED_OPERATORS = sorted({*QDQRegistry, *QLinearOpsRegistry})
MIN_OPSET = 13  # the first with a scale for each channel
STEPS = 255  # between the lowest and the highest of 256 levels
BINS = 2048
COUNTED = 1 << 16
MAX_BIAS = 1 << 29  # of an int32, with room for sums
SHARES = np.arange(1.0, 0.2, -0.02)  # of the widest range, that are tried

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Range = tuple[float, float]


@dataclass
class Observed:
    """What the calibration images look like at one activation, (1, C, ...), or at a constant of any shape."""

    lowest: float = 0.0  # zero belongs to the range: padding is zero
    highest: float = 0.0
    means: list[Doubles] = field(default_factory=list)  # of the channels, image by image
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, value: Floats) -> None:
        """Take one image's activation to the range and the means."""
        self.lowest, self.highest = min(self.lowest, float(value.min())), max(self.highest, float(value.max()))
        if value.ndim >= 2:
            self.means.append(value.mean(axis=(0, *range(2, value.ndim)), dtype=np.float64))

    def count(self, value: Floats) -> None:
        """Take COUNTED values of one image's activation, evenly spaced, to the histogram, when the range is known."""
        if self.lowest < self.highest:
            sample = value.ravel()[:: -(-value.size // COUNTED)]
            self.counts += np.histogram(sample, BINS, (self.lowest, self.highest))[0]


def quantize(model: onnx.ModelProto, images: Floats) -> onnx.ModelProto:
    """Return `model`, float32 (N, 3, H, W) to (N, classes), in 8 bits, calibrated on `images` (N, 3, H, W).

    The same images give the same bytes. Raises ExportError for an opset below MIN_OPSET and for a graph in 8 bits.
    """
    check_quantizable(model)
    observed, moments = observe(model, images)
    ranges = {name: best_range(activation) for name, activation in observed.items()}
    model = with_biases_that_fit(model, ranges)
    rounded = with_rounded_weights(model, moments)
    means = {name: np.mean(activation.means, axis=0) for name, activation in observed.items() if activation.means}
    corrected = with_corrected_biases(model, rounded, dequantized_weights(to_qdq(rounded, ranges)), means)
    return with_float_output(to_qdq(corrected, ranges))


def check_quantizable(model: onnx.ModelProto) -> None:
    if (opset := opset_of(model)) < MIN_OPSET:
        raise ExportError(
            f"--precision int8: expected a graph of opset {MIN_OPSET} or newer, got opset {opset}: export it with "
            "opset 17 (torch: opset_version=17, tf2onnx: --opset 17), or convert it with "
            "onnx.version_converter.convert_version(model, 17)"
        )
    quantized = sorted({node.op_type for node in model.graph.node if is_quantized(node)})
    if quantized:
        raise ExportError(
            f"--precision int8: expected a float graph, got one that is quantized already ({', '.join(quantized)}): "
            "leave --precision away, or give the graph from before its quantization"
        )


def is_quantized(node: onnx.NodeProto) -> bool:
    operator = node.op_type.lower()
    return "quantize" in operator or operator.startswith(("qlinear", "qgemm")) or operator.endswith("integer")


def observe(model: onnx.ModelProto, images: Floats) -> tuple[dict[str, Observed], dict[str, Doubles]]:
    """Run `images` one by one, twice; return what was seen at each activation, by its name.

    Also, by the name of its weights, the second moments (in, in) of the inputs of each convolution that has few.
    """
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    few = [node for node in model.graph.node if is_rounded_together(node, weights.get((*node.input, "", "")[1], ()))]
    observed: dict[str, Observed] = {}
    moments: dict[str, Doubles] = {}
    for activations in runs(model, images):
        for name, value in activations.items():
            observed.setdefault(name, Observed()).add(value)
        for node in few:
            patches = patches_of(node, weights[node.input[1]][2:], activations[node.input[0]]).astype(np.float64)
            moments[node.input[1]] = moments.get(node.input[1], 0) + patches.T @ patches / len(patches) / len(images)
    for activations in runs(model, images):  # again: all of them would fill the memory
        for name, value in activations.items():
            observed[name].count(value)
    return observed, moments


def runs(model: onnx.ModelProto, images: Floats) -> Iterator[dict[str, Floats]]:
    """Every float32 activation of each image, by name; the graph's input is one of them."""
    observed = onnx.shape_inference.infer_shapes(model)
    graph_input, outputs = only_input(observed.graph).name, {value.name for value in observed.graph.output}
    inner = [
        value
        for value in observed.graph.value_info
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT and value.name not in outputs
    ]
    observed.graph.output.extend(inner)
    session = onnxruntime.InferenceSession(observed.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for start in range(len(images)):
        image = images[start : start + 1]
        yield {graph_input: image, **dict(zip(names, session.run(names, {graph_input: image}), strict=True))}


def best_range(observed: Observed) -> Range:
    """The range, among shares of the widest, whose 256 levels are nearest to the values in the mean square."""
    lowest, highest = observed.lowest, observed.highest
    if lowest == highest:
        return lowest, highest
    centres = lowest + (np.arange(BINS) + 0.5) / BINS * (highest - lowest)

    def cost(share: float) -> float:
        scale = share * (highest - lowest) / STEPS
        zero = np.round(-share * lowest / scale)
        rounded = (np.clip(np.round(centres / scale) + zero, 0, STEPS) - zero) * scale
        return float((observed.counts * (rounded - centres) ** 2).sum())

    best = float(min(SHARES, key=cost))
    return best * lowest, best * highest


def to_qdq(model: onnx.ModelProto, ranges: Mapping[str, Range]) -> onnx.ModelProto:
    """Quantize with given ranges of the activations; `model` stays as it is."""
    data = {name: TensorData(lowest=np.float32(low), highest=np.float32(high)) for name, (low, high) in ranges.items()}
    quantizer = QDQQuantizer(
        copy_of(model),
        per_channel=True,
        reduce_range=False,  # 8 bits: only CPUs without VNNI, older than 2019, add up too many of them
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QUInt8,
        tensors_range=TensorsData(CalibrationMethod.MinMax, data),
        nodes_to_quantize=[],
        nodes_to_exclude=[],
        op_types_to_quantize=QUANTIZED_OPERATORS,
        extra_options={},
    )
    with quiet_logging():
        quantizer.quantize_model()
    return copy_of(quantizer.model.model)


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Keep back what ONNX Runtime logs of biases that two layers share or that are computed: neither is a fault."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def with_biases_that_fit(model: onnx.ModelProto, ranges: Mapping[str, Range]) -> onnx.ModelProto:
    """Give channels of next to no weights one that is large enough for their bias.

    A bias becomes an int32 in steps of the input's times the weights' scale: where training has driven a channel's
    weights to 1e-20 it would overflow. The weight that is added changes the output by less than 1e-4 of the bias.
    """
    fitting = copy_of(model)
    constants = {tensor.name: tensor for tensor in fitting.graph.initializer}
    for node in fitting.graph.node:
        weight, bias = (*node.input, "", "", "")[1:3]
        is_by_rows = node.op_type == "Conv" or (node.op_type == "Gemm" and attributes_of(node).get("transB", 0))
        if is_by_rows and weight in constants and bias in constants:
            low, high = ranges[node.input[0]]
            weights = to_array(constants[weight]).copy()
            rows = weights.reshape(len(weights), -1)
            least = 127 * np.abs(to_array(constants[bias])) * STEPS / max(high - low, 1e-30) / MAX_BIAS
            rows[:, 0] = np.where(np.abs(rows).max(axis=1) < least, least, rows[:, 0])
            constants[weight].CopyFrom(from_array(weights, weight))
    return fitting


def with_rounded_weights(model: onnx.ModelProto, moments: Mapping[str, Doubles]) -> onnx.ModelProto:
    """Put the weights that `moments` names on the grid of 8 bits already, together."""
    rounded = copy_of(model)
    for tensor in rounded.graph.initializer:
        if tensor.name in moments:
            weights = to_array(tensor)
            flat = round_together(weights.reshape(len(weights), -1), moments[tensor.name])
            tensor.CopyFrom(from_array(flat.reshape(weights.shape), tensor.name))
    return rounded


def with_corrected_biases(
    model: onnx.ModelProto, rounded: onnx.ModelProto, weights: Mapping[str, Floats], means: Mapping[str, Doubles]
) -> onnx.ModelProto:
    """Take the shift of each output channel's mean, which the rounded `weights` bring, from the biases of `rounded`.

    `means` are of the channels of each activation. Padding is neglected: there a kernel sees zeros too.
    """
    exact = {tensor.name: to_array(tensor) for tensor in model.graph.initializer}
    corrected = copy_of(rounded)
    constants = {tensor.name: tensor for tensor in corrected.graph.initializer}
    uses = Counter(name for node in corrected.graph.node for name in node.input)
    for node in corrected.graph.node:
        weight, bias = (*node.input, "", "", "")[1:3]
        if (
            node.op_type in ("Conv", "Gemm")
            and weight in exact
            and weight in weights
            and bias in constants
            and uses[bias] == 1
        ):
            shift = mean_shift(node, weights[weight] - exact[weight], means[node.input[0]])
            corrected_bias = (exact[bias] - shift.reshape(exact[bias].shape)).astype(np.float32)
            constants[bias].CopyFrom(from_array(corrected_bias, bias))
    return corrected


def mean_shift(node: onnx.NodeProto, error: Floats, mean: Doubles) -> Doubles:
    """How far `error` of the weights, (out, in / groups, ...) or for a Gemm (in, out), shifts the outputs: (out,)."""
    attributes = attributes_of(node)
    if node.op_type == "Gemm" and not attributes.get("transB", 0):
        error = error.T
    groups = attributes.get("group", 1)
    by_group = error.reshape(groups, len(error) // groups, error.shape[1], -1).sum(axis=3, dtype=np.float64)
    shifts: Doubles = np.einsum("goi,gi->go", by_group, mean.reshape(groups, -1)).ravel()
    return shifts


def dequantized_weights(quantized: onnx.ModelProto) -> dict[str, Floats]:
    """The rounded float32 weights by their names in the unquantized graph."""
    constants = {tensor.name: tensor for tensor in quantized.graph.initializer}
    weights = {}
    for node in quantized.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            levels, scale, zero = (to_array(constants[name]) for name in node.input)
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            shape = [-1 if axis == dim else 1 for dim in range(levels.ndim)] if scale.ndim else []
            values = (levels.astype(np.float32) - zero.astype(np.float32).reshape(shape)) * scale.reshape(shape)
            weights[node.input[0].removesuffix("_quantized")] = values
    return weights


def with_float_output(quantized: onnx.ModelProto) -> onnx.ModelProto:
    """Drop the last QuantizeLinear and DequantizeLinear, where the graph's output is behind them."""
    graph = quantized.graph
    made_by = {name: node for node in graph.node for name in node.output}
    output = graph.output[0].name
    restore = made_by[output]
    reduce = made_by.get(restore.input[0])
    if restore.op_type != "DequantizeLinear" or reduce is None or reduce.op_type != "QuantizeLinear":
        return quantized
    unrounded = made_by[reduce.input[0]]
    unrounded.output[:] = [output if name == reduce.input[0] else name for name in unrounded.output]
    graph.node.remove(restore)
    graph.node.remove(reduce)
    return quantized
