"""Models as tritonserver would find them in a repository."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from .finding import Finding

DEFAULT_FILES = {"python": "model.py", "onnxruntime": "model.onnx", "tensorrt": "model.plan"}
# In the image tritonserver:24.10-py3, apart from those for testing.
BACKENDS = ("dali", "fil", "onnxruntime", "openvino", "python", "pytorch", "tensorflow", "tensorrt")
BACKEND_OF_PLATFORM = {"onnxruntime_onnx": "onnxruntime", "tensorrt_plan": "tensorrt"}


@dataclass(frozen=True)
class Model:
    """One model with one of its configurations."""

    folder: Path
    file: Path  # its config.pbtxt, or a variant in configs/
    config: ModelConfig

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_variant(self) -> bool:
        return self.file.parent != self.folder

    @property
    def is_ensemble(self) -> bool:
        return bool(self.config.platform == "ensemble" or self.config.HasField("ensemble_scheduling"))

    @property
    def backend(self) -> str:
        return str(self.config.backend or BACKEND_OF_PLATFORM.get(self.config.platform, ""))

    @property
    def versions(self) -> list[Path]:
        """The oldest first; the last one is served."""
        folders = (path for path in self.folder.iterdir() if path.is_dir() and path.name.isdigit())
        return sorted(folders, key=lambda path: int(path.name))

    @property
    def is_complete(self) -> bool:
        """Whether it leaves nothing for Triton to complete from the model's file."""
        config = self.config
        is_whole = config.input and config.output and config.max_batch_size > 0
        return self.is_ensemble or bool(is_whole and config.WhichOneof("scheduling_choice"))

    @property
    def model_file(self) -> str | None:
        """The file's name in a version folder; None for an ensemble, or a backend whose files we do not know."""
        return self.config.default_model_filename or DEFAULT_FILES.get(self.backend)

    @property
    def input_names(self) -> list[str]:
        return [entry.name for entry in self.config.input]

    @cached_property
    def as_dict(self) -> dict[str, Any]:
        """The configuration as Triton hands it to a backend: its JSON form, with defaults."""
        result: dict[str, Any] = json_format.MessageToDict(
            self.config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return result

    def finding(self, field: str, message: str) -> Finding:
        return Finding(self.file, field, message)


def read_models(repository: Path, variant: str | None) -> tuple[dict[str, Model], list[Finding]]:
    """Read each model's configuration as --model-config-name=`variant` has it, and the findings where that fails."""
    models, findings = {}, []
    for folder in model_folders(repository):
        model = read_model(folder, variant)
        if isinstance(model, Model):
            models[folder.name] = model
        else:
            findings.append(model)
    return models, findings


def model_folders(repository: Path) -> list[Path]:
    return sorted(path for path in repository.iterdir() if path.is_dir() and not path.name.startswith("."))


def read_model(folder: Path, variant: str | None) -> Model | Finding:
    file = folder / "configs" / f"{variant}.pbtxt"
    if not file.is_file():
        file = folder / "config.pbtxt"
    if not file.is_file():
        return Finding(file, "file", f"expected a model's configuration, got none: move {folder} out of the repository")
    try:
        return Model(folder, file, text_format.Parse(file.read_text("utf-8"), ModelConfig()))
    except (text_format.ParseError, UnicodeDecodeError) as error:
        return Finding(file, "syntax", f"expected a Triton model configuration, got: {error}")


def variant_names(repository: Path) -> list[str]:
    return sorted({path.stem for path in repository.glob("*/configs/*.pbtxt")})


def type_name(data_type: int) -> str:
    return str(DataType.Name(data_type))


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
