"""Rules that read the network itself: the ONNX file against the configuration, the manifest, and Triton's release."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import onnx
from google.protobuf.message import DecodeError

from ..pretrained import sha256
from .finding import Finding
from .graph_rules import ConfigError, GraphTensor, check_config
from .models import Model
from .releases import newest_onnx
from .settings import refused


def unreadable(model: Model) -> Iterator[Finding]:
    for path in onnx_files(model):
        if read_graph(path) is None:
            yield Finding(path, "file", "expected an ONNX model, got another file: run `make export repository`")


def disagreement(model: Model) -> Iterator[Finding]:
    """Names, data types, dims and the dynamic batch, of TensorRT too: its plan keeps those of the graph."""
    for path in onnx_files(model):
        graph = read_graph(path)
        if graph is None:
            continue
        constants = {constant.name for constant in graph.graph.initializer}
        inputs = [tensor_of(value) for value in graph.graph.input if value.name not in constants]
        try:
            check_config(model.as_dict, inputs, [tensor_of(value) for value in graph.graph.output])
        except ConfigError as error:
            yield refused(model, error)


def model_sha256(model: Model) -> Iterator[Finding]:
    for path in onnx_files(model):
        manifest = path.parent / "manifest.json"
        expected, actual = sha256_in(manifest), file_sha256(path)
        if manifest.is_file() and expected != actual:
            yield Finding(
                manifest,
                "onnx.sha256",
                f"expected {actual[:16]}... of {path.name}, got {str(expected)[:16]}...: one of the two files is of "
                "another export, run `make export repository`",
            )


def engine_cache(model: Model) -> Iterator[Finding]:
    """ONNX Runtime names an engine after the graph, not after its weights: a new export would run with the old ones."""
    for accelerator in model.config.optimization.execution_accelerators.gpu_execution_accelerator:
        folder = accelerator.parameters.get("trt_engine_cache_path", "")
        if accelerator.name != "tensorrt" or "trt_engine_cache_enable" not in accelerator.parameters:
            continue
        for path in onnx_files(model)[-1:]:  # the version that is served
            if (actual := file_sha256(path)) not in folder:
                yield model.finding(
                    "optimization.execution_accelerators.tensorrt.trt_engine_cache_path",
                    f"expected the model's sha256 {actual[:16]}... in it, got {folder or 'none'}: an engine of other "
                    "weights would be taken, run `make repository`",
                )


def zero_points(model: Model) -> Iterator[Finding]:
    """TensorRT quantizes symmetrically. Source: onnx-tensorrt, onnxOpImporters.cpp, QuantDequantLinearHelper."""
    field = tensorrt_field(model)
    for path in onnx_files(model) if field else []:
        nodes = shifted_nodes(path)
        if nodes:
            yield model.finding(
                str(field),
                f"expected a graph whose zero points are all 0, got other ones in {len(nodes)} nodes of {path.name}, "
                f"of which the first is '{nodes[0]}', which TensorRT refuses: remove {model.file.name}, "
                "or give TensorRT the network in float32 or float16",
            )


def tensorrt_field(model: Model) -> str | None:
    """The setting by which TensorRT reads the network."""
    if model.backend == "tensorrt":
        return "platform"
    accelerators = model.config.optimization.execution_accelerators.gpu_execution_accelerator
    named = any(accelerator.name == "tensorrt" for accelerator in accelerators)
    return "optimization.execution_accelerators.tensorrt" if named else None


@lru_cache(maxsize=4)
def shifted_nodes(path: Path) -> tuple[str, ...]:
    """The names of the nodes that quantize or dequantize with a zero point other than 0."""
    model = read_graph(path)
    if model is None:
        return ()
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    constants |= {
        node.output[0]: node.attribute[0].t
        for node in model.graph.node
        if node.op_type == "Constant" and node.attribute[0].HasField("t")
    }
    return tuple(
        node.name or node.output[0]
        for node in model.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
        and len(node.input) > 2
        and is_not_zero(constants.get(node.input[2]))
    )


def is_not_zero(tensor: onnx.TensorProto | None) -> bool:
    """Whether it stands in the file and has another value."""
    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    return bool(onnx.numpy_helper.to_array(tensor).any())


def release(model: Model, triton: str) -> Iterator[Finding]:
    version, newest_opset, newest_ir = newest_onnx(triton)
    for path in onnx_files(model):
        graph = read_graph(path)
        if graph is None:
            continue
        reader = f"ONNX Runtime {version} of Triton {triton}"
        opset = max((entry.version for entry in graph.opset_import if entry.domain in ("", "ai.onnx")), default=0)
        if opset > newest_opset:
            yield Finding(
                path,
                "opset",
                f"expected at most {newest_opset} for {reader}, got {opset}: export it with an older opset",
            )
        if graph.ir_version > newest_ir:
            yield Finding(
                path,
                "ir_version",
                f"expected at most {newest_ir} for {reader}, got {graph.ir_version}: export it with an older onnx",
            )


def onnx_files(model: Model) -> list[Path]:
    """The network in each version folder; beside a TensorRT plan, the one that it is built from."""
    if model.backend == "tensorrt":
        names = [version / "model.onnx" for version in model.versions]
    elif model.backend == "onnxruntime":
        names = [version / (model.model_file or "model.onnx") for version in model.versions]
    else:
        return []
    return [path / "model.onnx" if path.is_dir() else path for path in names if path.exists()]


@lru_cache(maxsize=4)  # each variant is compared with the same file
def read_graph(path: Path) -> onnx.ModelProto | None:
    try:
        return onnx.load(path, load_external_data=False)
    except DecodeError:
        return None


@lru_cache(maxsize=4)
def file_sha256(path: Path) -> str:
    return sha256(path)


def sha256_in(manifest: Path) -> str | None:
    try:
        return str(json.loads(manifest.read_text("utf-8"))["onnx"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def tensor_of(value: onnx.ValueInfoProto) -> GraphTensor:
    """As ONNX Runtime describes it: "tensor(float)", and no number for a dynamic dimension."""
    tensor = value.type.tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    return GraphTensor.from_onnxruntime(SimpleNamespace(name=value.name, type=f"tensor({name})", shape=shape))
