"""What NVIDIA's onnxruntime backend accepts of a config.pbtxt, given the ONNX graph.

Nothing that loads with the stand-in may be refused by the container, so the rules are the official backend's
(onnxruntime_backend r24.10, src/onnxruntime.cc: ValidateInputs, ValidateOutputs, ModelState), only the words are ours.
A configuration is Triton's JSON form of ModelConfig, as a dict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

DYNAMIC = -1

# ONNX Runtime's name of an element type -> Triton's. The official backend takes no other but strings.
TRITON_TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
}

# Parts of a config.pbtxt that the official backend reads and the stand-in does not: refused, never ignored.
ONLY_IN_THE_CONTAINER = ("sequence_batching", "batch_input", "batch_output", "model_operations")

# The keys of `parameters` that the official backend reads; any other it ignores.
PARAMETERS = (
    "intra_op_thread_count",
    "inter_op_thread_count",
    "execution_mode",
    "enable_mem_arena",
    "enable_mem_pattern",
    "memory.enable_memory_arena_shrinkage",
)
# These too, on a GPU. It takes their defaults where `parameters` has none, whatever the accelerator "cuda" says.
CUDA_PARAMETERS = ("cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream")

# The keys that the official backend takes for the accelerator "tensorrt" (r24.10, src/onnxruntime.cc, LoadModel).
TENSORRT_FLAGS = (
    "int8_use_native_calibration_table",
    "trt_build_heuristics_enable",
    "trt_context_memory_sharing_enable",
    "trt_cuda_graph_enable",
    "trt_detailed_build_log",
    "trt_dla_enable",
    "trt_dump_ep_context_model",
    "trt_dump_subgraphs",
    "trt_engine_cache_enable",
    "trt_force_sequential_engine_build",
    "trt_force_timing_cache",
    "trt_layer_norm_fp32_fallback",
    "trt_sparsity_enable",
    "trt_timing_cache_enable",
)
TENSORRT_NUMBERS = (
    "max_workspace_size_bytes",
    "trt_auxiliary_streams",
    "trt_builder_optimization_level",
    "trt_dla_core",
    "trt_ep_context_embed_mode",
    "trt_max_partition_iterations",
    "trt_min_subgraph_size",
)
TENSORRT_TEXTS = (
    "int8_calibration_table_name",
    "precision_mode",
    "trt_engine_cache_path",
    "trt_engine_cache_prefix",
    "trt_ep_context_file_path",
    "trt_extra_plugin_lib_paths",
    "trt_profile_max_shapes",
    "trt_profile_min_shapes",
    "trt_profile_opt_shapes",
    "trt_tactic_sources",
    "trt_timing_cache_path",
)
PRECISIONS = ("FP32", "FP16", "BF16", "INT8")

Value = TypeVar("Value")


class ConfigError(ValueError):
    """config.pbtxt and the ONNX graph do not fit, or the configuration asks for what the backend cannot do."""


@dataclass(frozen=True)
class GraphTensor:
    """An input or output of the graph: `data_type` as Triton writes it, `dims` with the batch, -1 for dynamic."""

    name: str
    data_type: str
    dims: tuple[int, ...]

    @classmethod
    def from_onnxruntime(cls, node: Any) -> "GraphTensor":
        """Take an onnxruntime NodeArg, whose dynamic dimensions are names or None."""
        dims = tuple(dim if isinstance(dim, int) else DYNAMIC for dim in node.shape)
        return cls(node.name, TRITON_TYPES.get(node.type, node.type), dims)


def check_config(config: Mapping[str, Any], inputs: Sequence[GraphTensor], outputs: Sequence[GraphTensor]) -> None:
    """Raise ConfigError, naming the field, unless the official backend would load this graph with this config."""
    for field in ONLY_IN_THE_CONTAINER:
        if config.get(field):
            raise ConfigError(f"{field}: expected none, got one: only NVIDIA's onnxruntime backend supports it")
    max_batch_size = config["max_batch_size"]
    for entry in config["input"]:
        if entry.get("optional") and max_batch_size:
            raise ConfigError(f"input '{entry['name']}': expected no optional input where max_batch_size is above 0")
        if entry.get("allow_ragged_batch"):
            raise ConfigError(f"input '{entry['name']}': expected no allow_ragged_batch on a network of fixed rank")
    required = [entry["name"] for entry in config["input"] if not entry.get("optional")]
    if len(required) != len(inputs):
        raise ConfigError(f"input: expected the graph's {_names(inputs)}, got {len(required)}: {required}")
    for entry in config["input"]:
        _check_tensor("input", entry, inputs, max_batch_size, exact=False)
    for entry in config["output"]:
        _check_tensor("output", entry, outputs, max_batch_size, exact=True)


def _check_tensor(
    kind: str, entry: Mapping[str, Any], tensors: Sequence[GraphTensor], max_batch_size: int, *, exact: bool
) -> None:
    """An input's dynamic dimension takes any size of the config; an output's must be written as it is (`exact`)."""
    field = f"{kind} '{entry['name']}'"
    tensor = next((tensor for tensor in tensors if tensor.name == entry["name"]), None)
    if tensor is None:
        raise ConfigError(f"{field}: expected a name of the graph, which has {_names(tensors)}")
    if tensor.data_type not in TRITON_TYPES.values():
        raise ConfigError(f"{field}: expected a numeric tensor, got {tensor.data_type} in the graph")
    if entry["data_type"] != tensor.data_type:
        raise ConfigError(f"{field}: expected data_type {tensor.data_type} as in the graph, got {entry['data_type']}")
    if not tensor.dims:
        if any(int(dim) != 1 for dim in _config_dims(entry)):
            raise ConfigError(f"{field}: expected dims [ 1 ] for a scalar of the graph, got {_config_dims(entry)}")
        return
    if max_batch_size and tensor.dims[0] != DYNAMIC:
        raise ConfigError(
            f"{field}: expected a graph whose first dimension is dynamic, because max_batch_size is {max_batch_size}, "
            f"got {list(tensor.dims)}: export it with a dynamic batch, or set max_batch_size to 0"
        )
    graph_dims = list(tensor.dims[1:] if max_batch_size else tensor.dims)
    config_dims = _config_dims(entry)
    fits = len(graph_dims) == len(config_dims) and all(
        graph == ours or (graph == DYNAMIC and not exact) for graph, ours in zip(graph_dims, config_dims, strict=True)
    )
    if not fits:
        raise ConfigError(f"{field}: expected dims {graph_dims} as in the graph, got {config_dims}")


def _config_dims(entry: Mapping[str, Any]) -> list[int]:
    dims = entry["reshape"]["shape"] if entry.get("reshape") else entry["dims"]
    return [int(dim) for dim in dims]  # 64-bit numbers are strings in Triton's JSON


def _names(tensors: Sequence[GraphTensor]) -> str:
    return f"{len(tensors)}: {[tensor.name for tensor in tensors]}"


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """What `parameters` and `optimization` of config.pbtxt say about the ONNX Runtime session."""

    intra_op_thread_count: int = 0  # 0: one for every core
    inter_op_thread_count: int = 0
    execution_mode: int = 0  # 0 sequential, 1 parallel
    enable_mem_arena: bool = True
    enable_mem_pattern: bool = True
    arena_shrinkage: str = ""  # devices, such as "cpu:0;gpu:0"
    graph_level: int = 0  # Triton's ModelOptimizationPolicy.Graph.level

    @classmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> "SessionSettings":
        """Read and check the keys that the official backend reads, and like it ignore any other."""
        values = {key: entry["string_value"] for key, entry in config.get("parameters", {}).items()}

        def read(key: str, parse: Callable[[str, str], Value], default: Value) -> Value:
            return parse(key, values[key]) if key in values else default

        settings = cls(
            intra_op_thread_count=read("intra_op_thread_count", _integer, 0),
            inter_op_thread_count=read("inter_op_thread_count", _integer, 0),
            execution_mode=read("execution_mode", _integer, 0),
            enable_mem_arena=read("enable_mem_arena", _boolean, True),
            enable_mem_pattern=read("enable_mem_pattern", _boolean, True),
            arena_shrinkage=values.get("memory.enable_memory_arena_shrinkage", ""),
            graph_level=int(config.get("optimization", {}).get("graph", {}).get("level", 0)),
        )
        if settings.execution_mode not in (0, 1):
            raise ConfigError(f"parameters: execution_mode: expected 0 or 1, got {settings.execution_mode}")
        return settings


def execution_accelerators(config: Mapping[str, Any], kind: str) -> list[str]:
    """List the accelerators asked for ("tensorrt", "cuda") that matter on an instance of `kind`, "CPU" or "GPU"."""
    asked = config.get("optimization", {}).get("execution_accelerators", {})
    for entry in asked.get("cpu_execution_accelerator", []):
        raise ConfigError(f"cpu_execution_accelerator: expected none outside NVIDIA's container, got '{entry['name']}'")
    if kind != "GPU":
        return []
    check_cuda_parameters(config)
    entries = asked.get("gpu_execution_accelerator", [])
    for entry in entries:
        if entry["name"] not in ("tensorrt", "cuda"):
            raise ConfigError(f"gpu_execution_accelerator: expected tensorrt or cuda, got '{entry['name']}'")
        if entry["name"] == "tensorrt":
            check_tensorrt_options(entry.get("parameters", {}))
    return [entry["name"] for entry in entries]


def check_cuda_parameters(config: Mapping[str, Any]) -> None:
    """Raise ConfigError, naming the key, for a number that the official backend does not know."""
    for key, largest in (("cudnn_conv_algo_search", 2), ("arena_extend_strategy", 1)):
        if key in config.get("parameters", {}):
            value = _integer(key, config["parameters"][key]["string_value"])
            if not 0 <= value <= largest:
                raise ConfigError(f"parameters: {key}: expected 0 to {largest}, got {value}")


def check_tensorrt_options(options: Mapping[str, str]) -> None:
    """Raise ConfigError, naming the key, unless the official backend takes these options of "tensorrt"."""
    for key, value in options.items():
        if key in TENSORRT_FLAGS:
            _boolean(key, value)
        elif key in TENSORRT_NUMBERS:
            _integer(key, value)
        elif key not in TENSORRT_TEXTS:
            raise ConfigError(f"gpu_execution_accelerator: tensorrt: expected an option that it has, got '{key}'")
        elif key == "precision_mode" and value not in PRECISIONS:
            raise ConfigError(f"gpu_execution_accelerator: precision_mode: expected one of {PRECISIONS}, got '{value}'")


def _integer(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ConfigError(f"parameters: {key}: expected an integer, got '{value}'") from error


def _boolean(key: str, value: str) -> bool:
    # Source: triton-inference-server/backend r24.10, backend_common.cc, ParseBoolValue.
    if value.lower() in ("true", "1"):
        return True
    if value.lower() in ("false", "0"):
        return False
    raise ConfigError(f"parameters: {key}: expected true or false, got '{value}'")
