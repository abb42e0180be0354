"""Stand-in for NVIDIA's `onnxruntime` backend, for a Triton that has only the Python backend.

One config.pbtxt serves both: Triton takes `libtriton_onnxruntime.so` where the backend folder has it, else this file.
What the official one refuses is refused here too (graph_rules.py).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import triton_python_backend_utils as pb_utils

from graph_rules import (
    DYNAMIC,
    ConfigError,
    GraphTensor,
    SessionSettings,
    check_config,
    execution_accelerators,
)

GRAPH_OPTIMIZATION_LEVELS = {  # Triton's number -> ONNX Runtime's level; any other number is 0
    -1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
DEFAULT_MAX_BATCH_SIZE = 4  # Triton's --backend-config default-max-batch-size


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fill in max_batch_size, input and output from the graph, where config.pbtxt names none of them."""
        config = auto_complete_model_config.as_dict()
        if config["input"] and config["output"]:
            return auto_complete_model_config
        session = onnxruntime.InferenceSession(
            model_path(config, Path(pb_utils.get_model_dir())), providers=["CPUExecutionProvider"]
        )
        inputs, outputs = graph_tensors(session)
        batches = all(tensor.dims[:1] == (DYNAMIC,) for tensor in [*inputs, *outputs])
        if config["max_batch_size"] and not batches:
            raise ConfigError(
                f"max_batch_size: expected 0 for a graph without a dynamic batch, got {config['max_batch_size']}"
            )
        if batches and not config["max_batch_size"]:
            auto_complete_model_config.set_max_batch_size(DEFAULT_MAX_BATCH_SIZE)
        if batches and config["max_batch_size"] != 1:
            auto_complete_model_config.set_dynamic_batching()
        if not config["input"]:
            for tensor in inputs:
                auto_complete_model_config.add_input(config_entry(tensor, batches))
        if not config["output"]:
            for tensor in outputs:
                auto_complete_model_config.add_output(config_entry(tensor, batches))
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        settings = SessionSettings.from_model_config(config)
        providers = execution_providers(config, args["model_instance_kind"], int(args["model_instance_device_id"]))
        path = model_path(config, Path(args["model_repository"], args["model_version"]))
        self.session = onnxruntime.InferenceSession(path, session_options(settings), providers=providers)
        self.run_options = onnxruntime.RunOptions()
        if settings.arena_shrinkage:
            self.run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", settings.arena_shrinkage)
        check_config(config, *graph_tensors(self.session))
        self.input_names = [entry["name"] for entry in config["input"]]
        self.output_names = [entry["name"] for entry in config["output"]]
        self.batches = config["max_batch_size"] > 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run all requests of a batch as one, and give each its rows of the outputs."""
        if not self.batches:
            return [self._run([request])[0] for request in requests]
        return self._run(requests)

    def _run(self, requests: list[Any]) -> list[Any]:
        feeds = {name: joined([_input(request, name) for request in requests]) for name in self.input_names}
        try:
            outputs = self.session.run(self.output_names, feeds, self.run_options)
        except Exception as error:  # ONNX Runtime has no common base class; one run is one fate, as in the official
            failure = pb_utils.TritonError(f"onnxruntime: {error}", pb_utils.TritonError.INTERNAL)
            return [pb_utils.InferenceResponse(error=failure) for _ in requests]
        if len(requests) == 1:
            return [self._response(outputs)]
        ends = np.cumsum([len(_input(request, self.input_names[0])) for request in requests])[:-1]
        shares = [np.split(output, ends) for output in outputs]
        return [self._response([share[index] for share in shares]) for index in range(len(requests))]

    def _response(self, outputs: list[npt.NDArray[Any]]) -> Any:
        tensors = [pb_utils.Tensor(name, value) for name, value in zip(self.output_names, outputs, strict=True)]
        return pb_utils.InferenceResponse(tensors)


def model_path(config: dict[str, Any], version_folder: Path) -> str:
    """Find the ONNX file: default_model_filename, or model.onnx; a folder of that name holds a model.onnx."""
    path = version_folder / (config.get("default_model_filename") or "model.onnx")
    if path.is_dir():
        path = path / "model.onnx"
    if not path.is_file():
        raise ConfigError(f"model file: expected {path}, got no such file: run `make export repository`")
    return str(path)


def graph_tensors(session: onnxruntime.InferenceSession) -> tuple[list[GraphTensor], list[GraphTensor]]:
    inputs = [GraphTensor.from_onnxruntime(node) for node in session.get_inputs()]
    return inputs, [GraphTensor.from_onnxruntime(node) for node in session.get_outputs()]


def config_entry(tensor: GraphTensor, batches: bool) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "data_type": tensor.data_type,
        "dims": list(tensor.dims[1:] if batches else tensor.dims) or [1],
    }


def session_options(settings: SessionSettings) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(settings.intra_op_thread_count, 0)
    options.inter_op_num_threads = max(settings.inter_op_thread_count, 0)
    options.execution_mode = onnxruntime.ExecutionMode(settings.execution_mode)
    # Between two runs its threads would wait in a loop, and take a core from `preprocess`, which shares the cores.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.enable_cpu_mem_arena = settings.enable_mem_arena
    options.enable_mem_pattern = settings.enable_mem_pattern
    options.graph_optimization_level = GRAPH_OPTIMIZATION_LEVELS.get(settings.graph_level, GRAPH_OPTIMIZATION_LEVELS[0])
    return options


def execution_providers(config: dict[str, Any], kind: str, device_id: int) -> list[Any]:
    """CUDA on a GPU instance where this onnxruntime has it, TensorRT before it where asked for; the CPU always."""
    asked = execution_accelerators(config, kind)
    available = onnxruntime.get_available_providers()
    providers: list[Any] = ["CPUExecutionProvider"]
    if kind == "GPU" and "CUDAExecutionProvider" in available:
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device_id}))
    elif kind == "GPU":
        pb_utils.Logger.log_warn(
            "onnxruntime: a GPU instance, but an onnxruntime without CUDA: it runs on the CPU; install onnxruntime-gpu"
        )
    if "tensorrt" in asked:
        if "TensorrtExecutionProvider" not in available:
            raise ConfigError("gpu_execution_accelerator: expected an onnxruntime with TensorRT, got one without")
        providers.insert(0, ("TensorrtExecutionProvider", {"device_id": device_id}))
    return providers


def joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)  # the usual single request is not copied


def _input(request: Any, name: str) -> npt.NDArray[Any]:
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()  # type: ignore[no-any-return]
