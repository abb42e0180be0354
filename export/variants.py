"""What the classifier's folder holds besides config.pbtxt: variants for GPUs, and the script that builds a plan.

tritonserver takes configs/NAME.pbtxt with --model-config-name=NAME, and config.pbtxt for a model that has no such file.
The variants differ from config.pbtxt only in what makes the network run faster on a GPU, and are written with the
version folders: what TensorRT builds belongs to one model.onnx, so its name or folder bears that file's sha256.
"""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

CUDA, TENSORRT, PLAN = "onnxruntime_cuda", "onnxruntime_tensorrt", "tensorrt_plan"
BUILD_PLAN = "build_plan.sh"
OF_TENSORRT = (f"{TENSORRT}.pbtxt", f"{PLAN}.pbtxt", BUILD_PLAN)
USUAL_BATCH = 8  # TensorRT chooses the fastest kernels for it, and all others up to max_batch_size must run too
CACHE = "/cache"  # of the container; ONNX Runtime makes one folder in it, and not the folders above
WORKSPACE_BYTES = 1 << 30


def write_variants(model: Path, model_sha256: str, precision: str = "fp32", version: str = "1") -> None:
    """Write configs/ into the classifier's folder, from its config.pbtxt, and remove what an earlier one left there.

    TensorRT reads no int8 graph of ours: it wants zero points of zero, and those of uint8 activations are not.
    Source: onnx-tensorrt's assertion "TRT only supports symmetric quantization - zeroPt must be all zeros", as
    quoted in https://github.com/onnx/tensorflow-onnx/issues/1713.
    """
    config = text_format.Parse((model / "config.pbtxt").read_text("utf-8"), ModelConfig())
    folder = model / "configs"
    folder.mkdir(exist_ok=True)
    for name in OF_TENSORRT:
        (folder / name).unlink(missing_ok=True)
    for name, text in files_of(config, model_sha256, version).items():
        if precision != "int8" or name not in OF_TENSORRT:
            (folder / name).write_text(text, "utf-8")


def files_of(config: ModelConfig, model_sha256: str, version: str) -> dict[str, str]:
    """The files of configs/ by name, those for TensorRT among them."""
    heading = "# Written by `make repository` from ../config.pbtxt; for tritonserver --model-config-name="
    variants = {
        f"{name}.pbtxt": f"{heading}{name}\n{text_format.MessageToString(variant)}"
        for name, variant in variants_of(config, model_sha256).items()
    }
    return {**variants, BUILD_PLAN: build_script(config, model_sha256, version)}


def variants_of(config: ModelConfig, model_sha256: str) -> dict[str, ModelConfig]:
    return {
        CUDA: with_cuda(config),
        TENSORRT: with_tensorrt(config, model_sha256),
        PLAN: with_plan(config, model_sha256),
    }


def with_cuda(config: ModelConfig) -> ModelConfig:
    """ONNX Runtime's own CUDA kernels, in float32 as on a CPU."""
    variant = for_gpu(config)
    # 1 is HEURISTIC. The default, EXHAUSTIVE, tries every algorithm of cuDNN anew for each batch size, and dynamic
    # batching makes all of them. Here and not in the accelerator's own parameters, where the official backend replaces
    # it by the default (onnxruntime_backend r24.10, src/onnxruntime.cc, LoadModel).
    variant.parameters["cudnn_conv_algo_search"].string_value = "1"
    variant.optimization.execution_accelerators.gpu_execution_accelerator.add(name="cuda")
    return variant


def with_tensorrt(config: ModelConfig, model_sha256: str) -> ModelConfig:
    """TensorRT inside ONNX Runtime, in float16: the engine is built at the first load, for minutes, and then cached.

    The names under which ONNX Runtime caches engines follow from the graph and not from its weights.
    """
    variant = for_gpu(config)
    minimum, usual, maximum = profile(config)
    folder = f"{CACHE}/{model_sha256}"
    accelerator = variant.optimization.execution_accelerators.gpu_execution_accelerator.add(name="tensorrt")
    accelerator.parameters.update(
        {
            "precision_mode": "FP16",
            "max_workspace_size_bytes": str(WORKSPACE_BYTES),
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": folder,
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": folder,
            "trt_profile_min_shapes": minimum,
            "trt_profile_opt_shapes": usual,
            "trt_profile_max_shapes": maximum,
        }
    )
    return variant


def with_plan(config: ModelConfig, model_sha256: str) -> ModelConfig:
    """TensorRT alone, with a plan that configs/build_plan.sh has built on the same kind of GPU."""
    variant = for_gpu(config)
    variant.ClearField("backend")
    variant.ClearField("parameters")  # those of ONNX Runtime
    variant.platform = "tensorrt_plan"
    variant.default_model_filename = plan_name(model_sha256)
    return variant


def for_gpu(config: ModelConfig) -> ModelConfig:
    """A copy that is also warmed up at max_batch_size: on a GPU each new batch size is set up when it first comes."""
    variant = ModelConfig()
    variant.CopyFrom(config)
    if variant.model_warmup:
        largest = variant.model_warmup.add()
        largest.CopyFrom(variant.model_warmup[0])
        largest.name, largest.batch_size = f"batch of {config.max_batch_size}", config.max_batch_size
    return variant


def plan_name(model_sha256: str) -> str:
    return f"{model_sha256[:16]}.plan"


def profile(config: ModelConfig) -> tuple[str, str, str]:
    """The smallest, the usual and the largest input, as TensorRT's and ONNX Runtime's options want them written."""
    usual = min(USUAL_BATCH, config.max_batch_size)
    smallest, middle, largest = (
        ",".join(f"{entry.name}:{'x'.join(map(str, [batch, *entry.dims]))}" for entry in config.input)
        for batch in (1, usual, config.max_batch_size)
    )
    return smallest, middle, largest


def build_script(config: ModelConfig, model_sha256: str, version: str) -> str:
    """A shell script for the container of the Triton that will serve: its trtexec has the same TensorRT."""
    minimum, usual, maximum = profile(config)
    return f"""\
#!/bin/sh
# Written by `make repository`. Builds the plan that configs/{PLAN}.pbtxt names, from the model.onnx beside it. Run it
# on the GPU that will serve, in the container that will serve: a plan fits no other GPU and no other TensorRT.
set -eu
cd "$(dirname "$0")/../{version}"
echo "{model_sha256}  model.onnx" | sha256sum --check --quiet || {{
  echo "model.onnx: expected the one that this script was written for, got another: run make repository" >&2
  exit 1
}}
trtexec=$(command -v trtexec || echo /usr/src/tensorrt/bin/trtexec)
"$trtexec" --onnx=model.onnx --saveEngine=new.plan --fp16 \\
  --minShapes={minimum} --optShapes={usual} --maxShapes={maximum} \\
  --memPoolSize=workspace:{WORKSPACE_BYTES >> 20}M --skipInference
mv new.plan {plan_name(model_sha256)}
"""
