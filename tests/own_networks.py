"""Networks as a user may bring them, small, with weights that no layer leaves at zero."""

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

Array = npt.NDArray[np.float32]


def cifar_network() -> nn.Module:
    """32 x 32 pixels to 10 logits; what `--factory tests.own_networks:cifar_network` builds."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(128, 10)
    )


def trained(module: nn.Module, seed: int) -> nn.Module:
    """Give every tensor of a module values as training might leave them, batch statistics included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator)
                tensor.copy_(1 + noise.abs() if "running_var" in name else noise / max(tensor[0].numel(), 1) ** 0.5)
    return module.eval()


def keras_like_graph(
    *, size: int | str = 24, classes: int = 6, batch: str | int = "batch", data_type: int = TensorProto.UINT8
) -> tuple[onnx.ModelProto, Array]:
    """A graph as tf2onnx writes one: NHWC, pixels from 0 to 255, its normalization and softmax inside, names with `:0`.

    Mean over the image, then a matrix; returns the graph and that matrix (3, classes).
    """
    weights = np.random.default_rng(5).normal(0, 3, (3, classes)).astype(np.float32)
    name = "serving_default_images:0"
    nodes = [
        helper.make_node("Cast", [name], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["pixels", "full_scale"], ["scaled"]),
        helper.make_node("ReduceMean", ["scaled"], ["means"], axes=[1, 2], keepdims=0),
        helper.make_node("MatMul", ["means", "weights"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["StatefulPartitionedCall:0"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "keras_like",
        [helper.make_tensor_value_info(name, data_type, [batch, size, size, 3])],
        [helper.make_tensor_value_info("StatefulPartitionedCall:0", TensorProto.FLOAT, [batch, classes])],
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.array(255, np.float32), "full_scale"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weights


def half_graph() -> onnx.ModelProto:
    """24 x 24 pixels to 6 logits through two convolutions, all in half precision."""
    rng = np.random.default_rng(6)
    shapes = {"first": (8, 3, 3, 3), "second": (16, 8, 3, 3), "last": (16, 6)}
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["edges"], pads=[1] * 4),
        helper.make_node("Relu", ["edges"], ["positive"]),
        helper.make_node("Conv", ["positive", "second"], ["shapes"], pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["shapes"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "last"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 3, 24, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["n", 6])],
        [numpy_helper.from_array(rng.normal(0, 0.2, shape).astype(np.float16), name) for name, shape in shapes.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def keras_like_scores(pixels: npt.NDArray[np.uint8], weights: Array) -> npt.NDArray[np.float64]:
    """What that graph gives for pixels (N, H, W, 3), by its formula in float64."""
    scores = pixels.mean(axis=(1, 2), dtype=np.float64) / 255 @ weights.astype(np.float64)
    exponentials = np.exp(scores)
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
