"""The stand-in for NVIDIA's onnxruntime backend: what it refuses, and what it computes, inside a real Triton."""

import concurrent.futures
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc
from onnx import TensorProto, helper

from server.errors import ServerError
from server.process import TritonServer
from tests.asking import connect, tensor
from tests.running import server_options, started

X = 'name: "x" data_type: TYPE_FP32 dims: [ 4 ]'
Y = 'name: "y" data_type: TYPE_FP32 dims: [ 4 ]'
CONFIG = f"""
backend: "onnxruntime"
max_batch_size: 8
input [ {{ {X} }} ]
output [ {{ {Y} }} ]
"""


def with_parameter(key: str, value: str, config: str = CONFIG) -> str:
    return f'{config}parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def write_graph(path: Path, batch: str | int = "batch", opset: int = 17, ir_version: int = 8) -> None:
    """y = 2 x + row of x's mean, on float32 (batch, 4), so that a row's answer depends on that row alone."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1] if opset < 18 else None),
        helper.make_node("Add", ["twice", "mean"], ["y"]),
    ]
    shape = [batch, 4]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    model = helper.make_model(
        helper.make_graph(nodes, "twice_plus_mean", inputs, outputs), opset_imports=[helper.make_opsetid("", opset)]
    )
    model.ir_version = ir_version
    onnx.save(model, path)


def write_model(repository: Path, name: str, config: str = CONFIG, **graph: Any) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    write_graph(folder / "model.onnx", **graph)
    (folder.parent / "config.pbtxt").write_text(f'name: "{name}"\n{config}')


# Faults that the official backend refuses too: config, graph, and what the message must name.
FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "dims": (
        CONFIG.replace(X, X.replace("[ 4 ]", "[ 5 ]")),
        {},
        "input 'x': expected dims [4] as in the graph, got [5]",
    ),
    "rank": (
        CONFIG.replace(X, X.replace("[ 4 ]", "[ 4, 1 ]")),
        {},
        "input 'x': expected dims [4] as in the graph, got [4, 1]",
    ),
    "dynamic_output": (
        CONFIG.replace(Y, Y.replace("[ 4 ]", "[ -1 ]")),
        {},
        "output 'y': expected dims [4] as in the graph, got [-1]",
    ),
    "dynamic_input": (
        CONFIG.replace(X, X.replace("[ 4 ]", "[ -1 ]")),
        {},
        "input 'x': expected dims [4] as in the graph, got [-1]",
    ),
    "fixed_batch": (
        CONFIG,
        {"batch": 2},
        "input 'x': expected a graph whose first dimension is dynamic, because max_batch_size is 8, got [2, 4]",
    ),
    "data_type": (
        CONFIG.replace(X, X.replace("FP32", "FP16")),
        {},
        "input 'x': expected data_type TYPE_FP32 as in the graph, got TYPE_FP16",
    ),
    "output_type": (
        CONFIG.replace(Y, Y.replace("FP32", "INT64")),
        {},
        "output 'y': expected data_type TYPE_FP32 as in the graph, got TYPE_INT64",
    ),
    "extra_input": (
        CONFIG + 'input [ { name: "z" data_type: TYPE_FP32 dims: [ 4 ] } ]',
        {},
        "input: expected the graph's 1: ['x'], got 2: ['x', 'z']",
    ),
    "input_name": (
        CONFIG.replace(X, X.replace('"x"', '"X"')),
        {},
        "input 'X': expected a name of the graph, which has 1: ['x']",
    ),
    "output_name": (
        CONFIG.replace(Y, Y.replace('"y"', '"Y"')),
        {},
        "output 'Y': expected a name of the graph, which has 1: ['y']",
    ),
    "execution_mode": (with_parameter("execution_mode", "2"), {}, "execution_mode: expected 0 or 1, got 2"),
    "thread_count": (
        with_parameter("intra_op_thread_count", "two"),
        {},
        "intra_op_thread_count: expected an integer, got 'two'",
    ),
    "mem_arena": (
        with_parameter("enable_mem_arena", "maybe"),
        {},
        "enable_mem_arena: expected true or false, got 'maybe'",
    ),
    "ragged": (CONFIG.replace(X, X + " allow_ragged_batch: true"), {}, "input 'x': expected no allow_ragged_batch"),
    "accelerator": (
        CONFIG + 'optimization { execution_accelerators { cpu_execution_accelerator [ { name: "magic" } ] } }',
        {},
        "cpu_execution_accelerator: expected none",
    ),
    "new_opset": (
        CONFIG,
        {"opset": 22, "ir_version": 10},
        "Current official support for domain ai.onnx is till opset 21",
    ),
    "new_ir": (CONFIG, {"ir_version": 11}, "Unsupported model IR version: 11"),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The reasons for which one server refused all the models of FAULTS, with auto-completion off."""
    repository = tmp_path_factory.mktemp("faults") / "repository"
    for name, (config, graph, _) in FAULTS.items():
        write_model(repository, name, config, **graph)
    options = server_options(repository, "--disable-auto-complete-config")
    with TritonServer(options) as server, pytest.raises(ServerError) as caught:
        server.wait_until_ready()
    _, *parts = re.split(r"^model (\w+) cannot be loaded: ", str(caught.value), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_official_backend_refuses_is_refused(refusals: dict[str, str], fault: str) -> None:
    assert FAULTS[fault][2] in refusals[fault]


ACCEPTED = {
    "plain": CONFIG,
    "no_batch": CONFIG.replace("max_batch_size: 8", "max_batch_size: 0").replace("[ 4 ]", "[ -1, 4 ]"),
    "batched": CONFIG + "dynamic_batching { max_queue_delay_microseconds: 50000 }",
    "parameters": CONFIG
    + "".join(
        with_parameter(key, value, config="")
        for key, value in {
            "intra_op_thread_count": "1",
            "inter_op_thread_count": "1",
            "execution_mode": "1",
            "enable_mem_arena": "true",
            "enable_mem_pattern": "FALSE",
            "memory.enable_memory_arena_shrinkage": "cpu:0",
            "unknown": "ignored, as the official backend does",
        }.items()
    )
    + "optimization { graph { level: -1 } }",
}


@pytest.fixture(scope="module")
def accepting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    repository = tmp_path_factory.mktemp("accepted") / "repository"
    for name, config in ACCEPTED.items():
        write_model(repository, name, config)
    write_model(repository, "auto", 'backend: "onnxruntime"')
    write_model(repository, "auto_fixed", 'backend: "onnxruntime"', batch=2)
    with started(repository) as server:
        yield server


def infer(server: TritonServer, model: str, x: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, Any]:
    client = connect(server, "grpc")
    try:
        result: np.ndarray[Any, Any] = client.infer(model, [tensor("grpc", "x", x, "FP32")]).as_numpy("y")
        return result
    finally:
        client.close()


@pytest.mark.parametrize("model", [*ACCEPTED, "auto"])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_graph_is_computed(accepting: TritonServer, model: str, batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32)
    expected = 2 * x + x.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(infer(accepting, model, x), expected, rtol=1e-5, atol=1e-6)  # float32 sums of 4


def test_requests_of_a_batch_are_one_run_and_each_gets_its_own_rows(accepting: TritonServer) -> None:
    inputs = [np.full((1 + i % 2, 4), i, np.float32) for i in range(16)]
    client = connect(accepting, "grpc")
    before = client.get_inference_statistics("batched").model_stats[0]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda x: infer(accepting, "batched", x), inputs))
    after = client.get_inference_statistics("batched").model_stats[0]
    client.close()
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(y, 3 * x)
    assert after.inference_count - before.inference_count == 24
    assert after.execution_count - before.execution_count < 16


def test_a_config_is_completed_from_the_graph(accepting: TritonServer) -> None:
    client = connect(accepting, "grpc")
    auto, fixed = (client.get_model_config(name).config for name in ("auto", "auto_fixed"))
    client.close()
    assert auto.max_batch_size == 4
    assert auto.HasField("dynamic_batching")
    assert [(t.name, t.data_type, list(t.dims)) for t in auto.input] == [
        ("x", tritonclient.grpc.model_config_pb2.TYPE_FP32, [4])
    ]
    assert [(t.name, list(t.dims)) for t in auto.output] == [("y", [4])]
    assert (fixed.max_batch_size, list(fixed.input[0].dims)) == (0, [2, 4])
