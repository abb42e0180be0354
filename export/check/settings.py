"""Rules on one model's settings: what would be refused, ignored, or slow."""

import os
import re
from collections.abc import Iterator

from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from .finding import Finding
from .graph_rules import CUDA_PARAMETERS, PARAMETERS, ConfigError, SessionSettings, execution_accelerators
from .models import BACKENDS, Model, listed, type_name


def backend(model: Model) -> Iterator[Finding]:
    if not model.is_ensemble and model.backend not in BACKENDS:
        got = model.backend or model.config.platform or "none"
        yield model.finding("backend", f"expected one of {listed(BACKENDS)}, got {got}: change it")


def kind_gpu(model: Model) -> Iterator[Finding]:
    for index, group in enumerate(model.config.instance_group):
        if group.kind == ModelInstanceGroup.KIND_GPU:
            yield model.finding(
                f"instance_group[{index}].kind",
                "expected none, got KIND_GPU, with which nothing loads on a machine without a GPU: "
                "leave it out, and Triton takes a GPU where there is one",
            )


def oversubscribed_cores(model: Model) -> Iterator[Finding]:
    """ONNX Runtime's threads of all instances share the cores; 0 means one for every core, in every instance."""
    if model.backend != "onnxruntime":
        return
    cores, instances = os.cpu_count() or 1, instance_count(model)
    field = "parameters.intra_op_thread_count"
    try:
        threads = SessionSettings.from_model_config(model.as_dict).intra_op_thread_count
    except ConfigError:
        return  # session_settings() reports it
    most = max(cores // instances, 1)
    if threads == 0 and instances > 1:
        yield model.finding(
            field,
            f"expected a number where there are {instances} instances, got 0, every core for each of them: "
            f"{most} suits this machine",
        )
    elif threads > most:
        yield model.finding(
            field,
            f"expected at most {most} for {instances} instances on the {cores} cores of this machine, got {threads}: "
            "give fewer threads, or fewer instances",
        )


def instance_count(model: Model) -> int:
    return sum(max(group.count, 1) for group in model.config.instance_group) or 1


def warmup_inputs(model: Model) -> Iterator[Finding]:
    """A sample that does not fit fails when it is run, and with it the load."""
    if model.is_ensemble:
        return
    inputs = {entry.name: entry for entry in model.config.input}
    for index, sample in enumerate(model.config.model_warmup):
        field = f"model_warmup[{index}]"
        if not 1 <= sample.batch_size <= max(model.config.max_batch_size, 1):
            yield model.finding(
                f"{field}.batch_size",
                f"expected 1 to max_batch_size {model.config.max_batch_size}, got {sample.batch_size}: change it",
            )
        if sample.inputs.keys() != inputs.keys():
            yield model.finding(
                f"{field}.inputs",
                f"expected the model's inputs {listed(sorted(inputs))}, got {listed(sorted(sample.inputs))}: "
                "give one of each name",
            )
        for key in sorted(inputs.keys() & sample.inputs.keys()):
            wanted, given = inputs[key], sample.inputs[key]
            expected = f"{type_name(wanted.data_type)} {list(wanted.dims)}"
            fits = len(given.dims) == len(wanted.dims) and all(
                theirs in (ours, -1) and ours > 0 for ours, theirs in zip(given.dims, wanted.dims, strict=True)
            )
            if given.data_type != wanted.data_type or not fits:
                yield model.finding(
                    f"{field}.inputs.{key}",
                    f"expected {expected} as of the input, got {type_name(given.data_type)} {list(given.dims)}: "
                    "copy the input's",
                )


def unknown_parameters(model: Model) -> Iterator[Finding]:
    if model.backend != "onnxruntime":
        return
    known = (*PARAMETERS, *CUDA_PARAMETERS)
    for key in sorted(set(model.config.parameters) - set(known)):
        yield model.finding(
            f"parameters.{key}",
            f"expected a key that the onnxruntime backend reads, got one that it ignores: remove it, or write one of "
            f"{listed(known)}",
        )


def session_settings(model: Model) -> Iterator[Finding]:
    if model.backend == "onnxruntime":
        try:
            SessionSettings.from_model_config(model.as_dict)
        except ConfigError as error:
            yield refused(model, error)


def accelerators(model: Model) -> Iterator[Finding]:
    if model.backend == "onnxruntime":
        try:
            execution_accelerators(model.as_dict, "GPU")
        except ConfigError as error:
            yield refused(model, error)


def refused(model: Model, error: ConfigError) -> Finding:
    """The stand-in's own words, of which the first name the field."""
    field, _, message = str(error).partition(": expected ")
    return model.finding(field.replace(": ", "."), f"expected {message}: the onnxruntime backend refuses it, change it")


def overridden_cuda_options(model: Model) -> Iterator[Finding]:
    for accelerator in model.config.optimization.execution_accelerators.gpu_execution_accelerator:
        if accelerator.name == "cuda":
            for key in sorted(set(accelerator.parameters) & set(CUDA_PARAMETERS)):
                yield model.finding(
                    f"optimization.execution_accelerators.cuda.{key}",
                    "expected it in the model's own `parameters`, got it among the accelerator's, where the "
                    "onnxruntime backend replaces it by the default: move it",
                )


def profile_shapes(model: Model) -> Iterator[Finding]:
    """TensorRT runs no batch outside its profile: ONNX Runtime then builds a new engine, in the middle of a request."""
    for accelerator in model.config.optimization.execution_accelerators.gpu_execution_accelerator:
        for key, batch in (("trt_profile_min_shapes", 1), ("trt_profile_max_shapes", model.config.max_batch_size)):
            if accelerator.name != "tensorrt" or key not in accelerator.parameters:
                continue
            given = accelerator.parameters[key]
            wanted = {
                f"{e.name}:{'x'.join(map(str, [batch, *e.dims]))}" for e in model.config.input if -1 not in e.dims
            }
            if not wanted <= set(re.split(r"\s*,\s*", given)):
                yield model.finding(
                    f"optimization.execution_accelerators.tensorrt.{key}",
                    f"expected {listed(sorted(wanted))}, got {given}: a batch outside it waits for a new engine",
                )
