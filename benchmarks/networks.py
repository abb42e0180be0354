"""A network that costs nothing, so that what is measured is everything else."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE, CLASSES = 224, 1000


def write_trivial(folder: Path) -> list[str]:
    """Write a graph that averages each colour and multiplies by a matrix, with labels; return the export's options."""
    matrix = np.random.default_rng(0).normal(0, 1, (3, CLASSES)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["input"], ["means"], axes=[2, 3], keepdims=0),
            helper.make_node("MatMul", ["means", "matrix"], ["logits"]),
        ],
        "trivial",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(matrix, "matrix")],
    )
    model, labels = folder / "trivial.onnx", folder / "labels.txt"
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), model)
    labels.write_text("".join(f"class {number}\n" for number in range(CLASSES)))
    mean, std = ("0.485", "0.456", "0.406"), ("0.229", "0.224", "0.225")
    transform = ["--resize-size", "256", "--interpolation", "bilinear", "--mean", *mean, "--std", *std]
    return ["--onnx", str(model), "--labels", str(labels), *transform]
