"""`python -m export check`: one planted fault a rule, and nothing found in the repositories that we write."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc.model_config_pb2 import TYPE_FP16, ModelConfig, ModelInstanceGroup

from export.check.graphs import file_sha256, read_graph, shifted_nodes
from export.check.linter import find, find_cheap
from export.variants import CUDA, PLAN, TENSORRT, write_variants
from server.errors import ServerError
from server.process import TritonServer
from tests.running import server_options

NETWORK = "efficientnet_lite0"
CLASSES, CROP = 1000, 224


@pytest.fixture(scope="module")
def sound(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of lite0 with a small network in place of its own: it is copied for every fault."""
    repository = tmp_path_factory.mktemp("sound") / "repository"
    shutil.copytree(lite0, repository, ignore=shutil.ignore_patterns("model.onnx"))
    version = repository / NETWORK / "1"
    write_network(version / "model.onnx")
    return repository


@pytest.fixture
def repository(sound: Path, tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    shutil.copytree(sound, path)
    return path


def write_network(path: Path, batch: str | int = "batch", opset: int = 17, ir_version: int = 8, **shape: int) -> None:
    """A network of the right inputs and outputs; its manifest and variants are made to fit."""
    channels = shape.get("channels", 3)
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [channels, CLASSES], np.zeros(channels * CLASSES))
    nodes = [
        helper.make_node("GlobalAveragePool", ["input"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, channels, CROP, CROP])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, CLASSES])]
    graph = helper.make_graph(nodes, "small", inputs, outputs, [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = ir_version
    save_network(model, path)


def save_network(model: onnx.ModelProto, path: Path) -> None:
    onnx.save(model, path)
    for cached in (read_graph, file_sha256, shifted_nodes):
        cached.cache_clear()
    sha256 = file_sha256(path)
    (path.parent / "manifest.json").write_text(json.dumps({"onnx": {"sha256": sha256}}))
    write_variants(path.parent.parent, sha256)


def edit(repository: Path, model: str, change: Callable[[ModelConfig], object], variant: str | None = None) -> None:
    path = repository / model / ("config.pbtxt" if variant is None else f"configs/{variant}.pbtxt")
    config = text_format.Parse(path.read_text(), ModelConfig())
    change(config)
    path.write_text(text_format.MessageToString(config))


def test_nothing_is_found_in_what_we_write(lite0: Path, sound: Path) -> None:
    assert find(lite0, "24.10") == []
    assert find(sound, "24.10") == []


def test_every_variant_is_checked(sound: Path) -> None:
    assert {path.stem for path in (sound / NETWORK / "configs").glob("*.pbtxt")} == {CUDA, TENSORRT, PLAN}


MANY_THREADS = """
instance_group { count: 3 }
parameters { key: "intra_op_thread_count" value { string_value: "64" } }
"""

# Each fault: the model, what is changed, the variant that it is changed in, and the message.
Fault = tuple[str, Callable[[ModelConfig], object], str | None, str]
FAULTS: dict[str, Fault] = {
    "name": (
        NETWORK,
        lambda c: setattr(c, "name", "resnet50"),
        None,
        f"{NETWORK}/config.pbtxt: name: expected '{NETWORK}', as its folder's, got 'resnet50': rename one",
    ),
    "backend": (
        NETWORK,
        lambda c: setattr(c, "backend", "onnx"),
        None,
        "backend: expected one of dali, fil, onnxruntime, openvino, python, pytorch, tensorflow, tensorrt, got onnx",
    ),
    "kind_gpu": (
        NETWORK,
        lambda c: setattr(c.instance_group[0], "kind", ModelInstanceGroup.KIND_GPU),
        None,
        "instance_group[0].kind: expected none, got KIND_GPU",
    ),
    "every_core_twice": (
        NETWORK,
        lambda c: setattr(c.instance_group[0], "count", 2),
        None,
        "parameters.intra_op_thread_count: expected a number where there are 2 instances, got 0, every core for each",
    ),
    "too_many_threads": (
        NETWORK,
        lambda c: c.MergeFrom(text_format.Parse(MANY_THREADS, ModelConfig())),
        None,
        f"for 4 instances on the {os.cpu_count()} cores of this machine, got 64: give fewer threads",
    ),
    "warmup_batch": (
        NETWORK,
        lambda c: setattr(c.model_warmup[0], "batch_size", 64),
        None,
        "model_warmup[0].batch_size: expected 1 to max_batch_size 32, got 64",
    ),
    "warmup_names": (
        NETWORK,
        lambda c: c.model_warmup[1].inputs["pixels"].CopyFrom(c.model_warmup[1].inputs.pop("input")),
        None,
        "model_warmup[1].inputs: expected the model's inputs input, got pixels",
    ),
    "warmup_dims": (
        NETWORK,
        lambda c: c.model_warmup[0].inputs["input"].dims.__setitem__(0, 1),
        None,
        "model_warmup[0].inputs.input: expected TYPE_FP32 [3, 224, 224] as of the input, got TYPE_FP32 [1, 224, 224]",
    ),
    "unknown_parameter": (
        NETWORK,
        lambda c: set_parameter(c, "intra_op_num_threads", "2"),
        None,
        "parameters.intra_op_num_threads: expected a key that the onnxruntime backend reads, got one that it ignores",
    ),
    "parameter_value": (
        NETWORK,
        lambda c: set_parameter(c, "execution_mode", "2"),
        None,
        "parameters.execution_mode: expected 0 or 1, got 2: the onnxruntime backend refuses it",
    ),
    "accelerator": (
        NETWORK,
        lambda c: setattr(accelerator(c), "name", "tensor_rt"),
        TENSORRT,
        f"configs/{TENSORRT}.pbtxt: gpu_execution_accelerator: expected tensorrt or cuda, got 'tensor_rt'",
    ),
    "tensorrt_key": (
        NETWORK,
        lambda c: accelerator(c).parameters.update({"trt_fp16_enable": "1"}),
        TENSORRT,
        "gpu_execution_accelerator.tensorrt: expected an option that it has, got 'trt_fp16_enable'",
    ),
    "tensorrt_precision": (
        NETWORK,
        lambda c: accelerator(c).parameters.update({"precision_mode": "fp16"}),
        TENSORRT,
        "gpu_execution_accelerator.precision_mode: expected one of ('FP32', 'FP16', 'BF16', 'INT8'), got 'fp16'",
    ),
    "cuda_option": (
        NETWORK,
        lambda c: accelerator(c).parameters.update({"cudnn_conv_algo_search": "HEURISTIC"}),
        CUDA,
        "accelerators.cuda.cudnn_conv_algo_search: expected it in the model's own `parameters`, got it among the",
    ),
    "cuda_parameter": (
        NETWORK,
        lambda c: set_parameter(c, "cudnn_conv_algo_search", "3"),
        CUDA,
        f"configs/{CUDA}.pbtxt: parameters.cudnn_conv_algo_search: expected 0 to 2, got 3: the onnxruntime backend",
    ),
    "profile": (
        NETWORK,
        lambda c: setattr(c, "max_batch_size", 64),
        TENSORRT,
        "tensorrt.trt_profile_max_shapes: expected input:64x3x224x224, got input:32x3x224x224",
    ),
    "engine_cache": (
        NETWORK,
        lambda c: accelerator(c).parameters.update({"trt_engine_cache_path": "/cache"}),
        TENSORRT,
        "tensorrt.trt_engine_cache_path: expected the model's sha256 ",
    ),
    "graph_name": (
        NETWORK,
        lambda c: setattr(c.output[0], "name", "scores"),
        None,
        f"{NETWORK}/config.pbtxt: output 'scores': expected a name of the graph, which has 1: ['logits']",
    ),
    "graph_type": (
        NETWORK,
        lambda c: setattr(c.input[0], "data_type", TYPE_FP16),
        None,
        "input 'input': expected data_type TYPE_FP32 as in the graph, got TYPE_FP16",
    ),
    "graph_dims": (
        NETWORK,
        lambda c: c.input[0].dims.__setitem__(0, 1),
        PLAN,
        f"configs/{PLAN}.pbtxt: input 'input': expected dims [3, 224, 224] as in the graph, got [1, 224, 224]",
    ),
    "preprocess_key": (
        "preprocess",
        lambda c: c.parameters["resize"].CopyFrom(c.parameters.pop("resize_size")),
        None,
        "preprocess/config.pbtxt: parameters: missing ['resize_size'], unknown ['resize']",
    ),
    "preprocess_value": (
        "preprocess_frames",
        lambda c: set_parameter(c, "interpolation", '"nearest"'),
        None,
        "preprocess_frames/config.pbtxt: parameters.interpolation: expected bilinear or bicubic, got 'nearest'",
    ),
    "preprocess_crop": (
        "preprocess",
        lambda c: set_parameter(c, "crop_size", "192"),
        None,
        "preprocess/config.pbtxt: output[0].dims: expected [3, 192, 192] by crop_size, got [3, 224, 224]",
    ),
    "postprocess_parameter": (
        "postprocess",
        lambda c: set_parameter(c, "activation", '"softplus"'),
        None,
        "postprocess/config.pbtxt: parameters.activation: expected one of softmax, sigmoid, none, got 'softplus'",
    ),
    "preprocess_ragged": (
        "preprocess",
        lambda c: setattr(c.input[0], "allow_ragged_batch", False),
        None,
        "input 'raw_image'.allow_ragged_batch: expected true, got false",
    ),
    "preprocess_batching": (
        "preprocess",
        lambda c: c.ClearField("dynamic_batching"),
        None,
        "preprocess/config.pbtxt: dynamic_batching: expected one, got none",
    ),
    "cached_step": (
        "postprocess",
        lambda c: setattr(c.response_cache, "enable", True),
        None,
        "response_cache.enable: expected false for a model that reads request parameters, got true",
    ),
    "cached_ensemble": (
        "pipeline",
        lambda c: setattr(c.response_cache, "enable", True),
        None,
        "response_cache.enable: expected false, because its step postprocess reads request parameters, got true",
    ),
    "ensemble_ragged": (
        "pipeline",
        lambda c: setattr(c.input[0], "allow_ragged_batch", True),
        None,
        "input 'raw_image'.allow_ragged_batch: expected none on an ensemble, got true, which Triton ignores",
    ),
    "ensemble_warmup": (
        "pipeline",
        lambda c: c.model_warmup.add(name="one", batch_size=1),
        None,
        "pipeline/config.pbtxt: model_warmup: expected none on an ensemble",
    ),
    "ensemble_instances": (
        "pipeline",
        lambda c: c.instance_group.add(count=1),
        None,
        "pipeline/config.pbtxt: instance_group: expected none on an ensemble",
    ),
    "ensemble_platform": (
        "pipeline",
        lambda c: setattr(c, "platform", ""),
        None,
        "pipeline/config.pbtxt: platform: expected 'ensemble', got ''",
    ),
    "unknown_version": (
        "pipeline",
        lambda c: setattr(c.ensemble_scheduling.step[1], "model_version", 3),
        None,
        f"step[1].model_version: expected -1, the newest, or one of 1 of {NETWORK}, got 3: write -1",
    ),
    "ensemble_without_steps": (
        "pipeline",
        lambda c: c.ClearField("ensemble_scheduling"),
        None,
        "pipeline/config.pbtxt: ensemble_scheduling.step: expected at least one, got none",
    ),
    "unknown_step": (
        "pipeline",
        lambda c: setattr(c.ensemble_scheduling.step[1], "model_name", "resnet50"),
        None,
        "ensemble_scheduling.step[1].model_name: expected a model of the repository, got 'resnet50': it has effi",
    ),
    "unknown_input": (
        "pipeline",
        lambda c: c.ensemble_scheduling.step[1].input_map.update({"images": "normalized"}),
        None,
        f"step[1].input_map: expected as key an input of {NETWORK}, got 'images': {NETWORK} has input",
    ),
    "unknown_output": (
        "pipeline",
        lambda c: c.ensemble_scheduling.step[1].output_map.update({"probabilities": "p"}),
        None,
        f"step[1].output_map: expected as key an output of {NETWORK}, got 'probabilities': {NETWORK} has logits",
    ),
    "missing_input": (
        "pipeline",
        lambda c: c.ensemble_scheduling.step[2].input_map.pop("error"),
        None,
        "step[2].input_map: expected every input of postprocess, got none of key 'error'",
    ),
    "unfed": (
        "pipeline",
        lambda c: c.ensemble_scheduling.step[1].input_map.update({"input": "normalised"}),
        None,
        "input_map 'input': expected as value an input of the ensemble or an output of a step, got 'normalised'",
    ),
    "unused_input": (
        "pipeline",
        lambda c: c.input.add(name="mask", dims=[1]),
        None,
        "pipeline/config.pbtxt: input 'mask': expected a step that takes it, got none",
    ),
    "unused_tensor": (
        "pipeline",
        lambda c: c.output.pop(),
        None,
        "step[2].output_map 'error': expected a step that takes 'error', or an output of the ensemble, got none",
    ),
    "missing_output": (
        "pipeline",
        lambda c: setattr(c.output[0], "name", "class"),
        None,
        "pipeline/config.pbtxt: output 'class': expected a step that makes it, got none: the steps make class_id, ",
    ),
    "produced_twice": (
        "pipeline",
        lambda c: c.ensemble_scheduling.step[2].output_map.update({"error": "preprocess_error"}),
        None,
        "ensemble_scheduling 'preprocess_error': expected one origin, got preprocess, postprocess",
    ),
    "wire_type": (
        "pipeline",
        lambda c: setattr(c.output[0], "data_type", c.output[1].data_type),
        None,
        "step[2].output_map 'class_id': expected TYPE_FP32, as 'class_id' of pipeline has it, got TYPE_INT32 of postpr",
    ),
    "wire_dims": (
        "postprocess",
        lambda c: c.input[0].dims.__setitem__(0, 100),
        None,
        f"step[2].input_map 'logits': expected [1000], as 'logits' of {NETWORK} has it, got [100] of postprocess",
    ),
    "batch_size": (
        "preprocess",
        lambda c: setattr(c, "max_batch_size", 8),
        None,
        "pipeline/config.pbtxt: max_batch_size: expected at most 8, that of its step preprocess, got 32",
    ),
}


def set_parameter(config: ModelConfig, key: str, value: str) -> None:
    config.parameters[key].string_value = value


def accelerator(config: ModelConfig) -> "ModelConfig":
    return config.optimization.execution_accelerators.gpu_execution_accelerator[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(repository: Path, fault: str) -> None:
    model, change, variant, message = FAULTS[fault]
    edit(repository, model, change, variant)
    assert message in "\n".join(map(str, find(repository, "24.10")))


SILENT = {"cached_ensemble", "ensemble_ragged"}  # Triton takes them, and does something else


def test_triton_refuses_the_ensembles_in_which_a_fault_is_found(repository: Path) -> None:
    """The rules on ensembles are ours: each fault is shown to a real Triton, in an ensemble of its own."""
    faults = {fault for fault, (model, *_) in FAULTS.items() if model == "pipeline"}
    faults.remove("ensemble_platform")  # refused too, as no ensemble, for which only the message about it is shown
    for fault in faults:
        shutil.copytree(repository / "pipeline", repository / fault)
        edit(repository, fault, FAULTS[fault][1])
        edit(repository, fault, lambda config, name=fault: setattr(config, "name", name))  # type: ignore[misc]
    with TritonServer(server_options(repository)) as server, pytest.raises(ServerError) as caught:
        server.wait_until_ready()
    assert set(re.findall(r"^model (\w+) cannot be loaded", str(caught.value), re.MULTILINE)) == faults - SILENT


# Faults of files


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


FILE_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "syntax": (
        lambda r: (r / "postprocess" / "config.pbtxt").write_text("name: postprocess"),
        "postprocess/config.pbtxt: syntax: expected a Triton model configuration, got: ",
    ),
    "variant_syntax": (
        lambda r: (r / NETWORK / "configs" / f"{CUDA}.pbtxt").write_text("max_batch_size: many"),
        f"configs/{CUDA}.pbtxt: syntax: expected a Triton model configuration, got: ",
    ),
    "no_config": (
        lambda r: (r / "notes").mkdir(),
        "notes/config.pbtxt: file: expected a model's configuration, got none",
    ),
    "no_version": (lambda r: remove(r / "pipeline" / "1"), "pipeline: version: expected a folder such as 1/, got none"),
    "no_model": (
        lambda r: remove(r / "preprocess" / "1" / "model.py"),
        "preprocess/1/model.py: file: expected the model's file, got none: run `make export repository`",
    ),
    "no_labels": (
        lambda r: remove(r / "postprocess" / "1" / "labels.txt"),
        "postprocess/1/labels.txt: labels: expected one label a line in ",
    ),
    "labels": (
        lambda r: (r / "postprocess" / "1" / "labels.txt").write_text("cat\ndog\n"),
        "labels.txt: labels: expected 1000 lines, as many as the logits of config.pbtxt, got 2",
    ),
    "not_onnx": (
        lambda r: (r / NETWORK / "1" / "model.onnx").write_bytes(b"not ONNX"),
        f"{NETWORK}/1/model.onnx: file: expected an ONNX model, got another file",
    ),
    "sha256": (
        lambda r: (r / NETWORK / "1" / "manifest.json").write_text('{"onnx": {"sha256": "0123456789abcdef0123"}}'),
        "manifest.json: onnx.sha256: expected ",
    ),
    "fixed_batch": (
        lambda r: write_network(r / NETWORK / "1" / "model.onnx", batch=1),
        "input 'input': expected a graph whose first dimension is dynamic, because max_batch_size is 32",
    ),
    "opset": (
        lambda r: write_network(r / NETWORK / "1" / "model.onnx", opset=22),
        "model.onnx: opset: expected at most 21 for ONNX Runtime 1.19.2 of Triton 24.10, got 22: export it with",
    ),
    "ir_version": (
        lambda r: write_network(r / NETWORK / "1" / "model.onnx", ir_version=11),
        "model.onnx: ir_version: expected at most 10 for ONNX Runtime 1.19.2 of Triton 24.10, got 11: export it with",
    ),
}


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_a_fault_of_files_is_found(repository: Path, fault: str) -> None:
    damage, message = FILE_FAULTS[fault]
    damage(repository)
    assert message in "\n".join(map(str, find(repository, "24.10")))


def test_an_older_release_reads_less(repository: Path) -> None:
    write_network(repository / NETWORK / "1" / "model.onnx", opset=21, ir_version=10)
    assert find(repository, "24.10") == []
    fields = [finding.field for finding in find(repository, "24.04")]
    assert fields == ["opset", "ir_version"]


# Networks that TensorRT would get, and networks that nothing would


def write_quantized_network(model: Path, zero_point: int) -> None:
    """The small network with its input in 8 bits, in between."""
    path = model / "1" / "model.onnx"
    graph = onnx.load(path)
    constants = {"scale": np.float32(0.02), "zero_point": np.int8(zero_point)}
    graph.graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in constants.items())
    graph.graph.node[0].input[0] = "rounded"
    graph.graph.node.insert(0, helper.make_node("QuantizeLinear", ["input", *constants], ["levels"], name="first"))
    graph.graph.node.insert(1, helper.make_node("DequantizeLinear", ["levels", *constants], ["rounded"]))
    save_network(graph, path)


def test_zero_points_that_tensorrt_refuses_are_found(repository: Path) -> None:
    write_quantized_network(repository / NETWORK, zero_point=3)
    found = find(repository, "24.10")
    message = (
        "expected a graph whose zero points are all 0, got other ones in 2 nodes of model.onnx, of which the first is "
        "'first', which TensorRT refuses: remove "
    )
    assert [(finding.file.stem, finding.field) for finding in found] == [
        (TENSORRT, "optimization.execution_accelerators.tensorrt"),
        (PLAN, "platform"),
    ]
    assert all(message in finding.message for finding in found)
    for finding in found:  # what the message says
        finding.file.unlink()
    assert find(repository, "24.10") == []


def test_zero_points_of_zero_are_left_alone(repository: Path) -> None:
    write_quantized_network(repository / NETWORK, zero_point=0)
    assert find(repository, "24.10") == []


def test_the_network_of_an_earlier_export_is_found(repository: Path) -> None:
    shutil.copytree(repository / NETWORK, repository / "earlier")
    for path in (repository / "earlier").rglob("*.pbtxt"):
        path.write_text(path.read_text().replace(f'name: "{NETWORK}"', 'name: "earlier"'))
    (finding,) = find(repository, "24.10")
    assert str(finding) == (
        f"{repository}/earlier: ensemble: expected a step of pipeline, pipeline_frames that runs it, got none: it "
        f"takes memory all the same, remove {repository}/earlier, or give its export a repository of its own"
    )
    assert find_cheap(repository, None) == [finding]
    for pipeline in ("pipeline", "pipeline_frames"):  # models for themselves are no leftovers
        remove(repository / pipeline)
    assert find(repository, "24.10") == []


# No repository


def planted(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


@pytest.mark.parametrize(
    ("paths", "cure"),
    [
        ((), "run `make export repository`"),
        (("model.onnx", "notes/todo.txt", ".git/config.pbtxt"), "run `make export repository`"),
        (
            ("model.onnx", "model_repository/net/config.pbtxt", "model_repository/pipeline/config.pbtxt"),
            "there are models in {}/model_repository, give that",
        ),
        (
            ("a/model_repository/net/config.pbtxt", "b/model_repository/net/config.pbtxt"),
            "there are models in {}/a/model_repository, {}/b/model_repository, give that",
        ),
        (("config.pbtxt", "1/model.onnx"), "this is one model, the repository is {}/.."),
    ],
    ids=["empty", "stray files", "an export", "exports", "a model"],
)
def test_a_folder_without_models_is_no_repository(tmp_path: Path, paths: tuple[str, ...], cure: str) -> None:
    planted(tmp_path, *paths)
    (finding,) = find(tmp_path, "24.10")
    expected = f"{tmp_path}: models: expected at least one folder with a config.pbtxt, got none: "
    assert str(finding) == expected + cure.replace("{}/..", str(tmp_path.parent)).replace("{}", str(tmp_path))


# The command


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "export", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_exit_status_says_whether_anything_was_found(repository: Path, tmp_path: Path) -> None:
    sound = run(str(repository))
    assert (sound.returncode, sound.stdout) == (0, f"{repository}: nothing found, for Triton 24.10\n")
    edit(repository, "pipeline", lambda config: config.instance_group.add(count=1))
    faulty = run(str(repository), "--triton", "25.02")
    assert (faulty.returncode, faulty.stdout.splitlines()) == (
        1,
        [
            f"{repository}/pipeline/config.pbtxt: instance_group: expected none on an ensemble, got one, which Triton "
            "refuses: give it to the steps",
            f"{repository}: 1 found, for Triton 25.02",
        ],
    )
    assert run(str(tmp_path / "nowhere")).returncode == 2
    (tmp_path / "empty").mkdir()
    assert run(str(tmp_path / "empty")).returncode == 1
    assert run(str(repository), "--triton", "19.01").returncode == 2
