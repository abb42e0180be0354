"""Rules on the Python models `preprocess`, `preprocess_frames` and `postprocess`, told by the names of their inputs."""

import json
import re
from collections.abc import Callable, Iterator

from python_models.postprocess.config import PostprocessConfig
from python_models.postprocess.labels import load_labels
from python_models.preprocess.config import CONFIGS

from .finding import Finding
from .models import Model


def is_preprocess(model: Model) -> bool:
    return model.backend == "python" and len(model.input_names) == 1 and model.input_names[0] in CONFIGS


def is_postprocess(model: Model) -> bool:
    return model.backend == "python" and "logits" in model.input_names


def step_settings(model: Model) -> Iterator[Finding]:
    """What the readers of the steps themselves refuse."""
    if is_preprocess(model):
        step: str = "preprocess"
        read: Callable[[str], object] = CONFIGS[model.input_names[0]].from_model_config
    elif is_postprocess(model):
        step, read = "postprocess", PostprocessConfig.from_model_config
    else:
        return
    try:
        read(json.dumps(model.as_dict))
    except ValueError as error:
        name, _, problem = str(error).removeprefix("config.pbtxt ").partition(": ")
        field = name if name == "parameters" else f"parameters.{name}"
        yield model.finding(field, f"{problem}: {step} refuses to load, see python_models/{step}/config.py")


def preprocess_output(model: Model) -> Iterator[Finding]:
    crop = model.config.parameters["crop_size"].string_value if "crop_size" in model.config.parameters else ""
    if is_preprocess(model) and crop.isdecimal() and model.config.output:
        dims, expected = list(model.config.output[0].dims), [3, int(crop), int(crop)]
        if dims != expected:
            yield model.finding("output[0].dims", f"expected {expected} by crop_size, got {dims}: change one of them")


def preprocess_ragged(model: Model) -> Iterator[Finding]:
    if is_preprocess(model) and not model.config.input[0].allow_ragged_batch:
        yield model.finding(
            f"input '{model.input_names[0]}'.allow_ragged_batch",
            "expected true, got false, with which images of different size are never executed together: set it",
        )


def preprocess_batching(model: Model) -> Iterator[Finding]:
    if is_preprocess(model) and not model.config.HasField("dynamic_batching"):
        yield model.finding(
            "dynamic_batching",
            "expected one, got none, with which requests are executed one by one: write dynamic_batching { }",
        )


def postprocess_labels(model: Model) -> Iterator[Finding]:
    if not is_postprocess(model):
        return
    logits = next(entry for entry in model.config.input if entry.name == "logits")
    if not logits.dims:
        return
    for version in model.versions:
        try:
            load_labels(version / "labels.txt", int(logits.dims[0]))
        except ValueError as error:
            yield Finding(version / "labels.txt", "labels", f"{str(error).removeprefix('labels: ')}")


def cached_request_parameters(model: Model) -> Iterator[Finding]:
    if model.config.response_cache.enable and reads_request_parameters(model):
        yield model.finding(
            "response_cache.enable",
            "expected false for a model that reads request parameters, got true: the cache's key leaves them out, so "
            "one caller would get another's answer, remove it",
        )


def reads_request_parameters(model: Model) -> bool:
    """Whether the code of a Python model asks for them. Triton's cache key: core, cache_manager, HashInputs."""
    return model.backend == "python" and any(
        re.search(r"\.parameters\(\)", path.read_text("utf-8", "replace"))
        for version in model.versions
        for path in version.rglob("*.py")
    )
