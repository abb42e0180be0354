"""The settings of `postprocess`, read from config.pbtxt."""

import json
from dataclasses import dataclass
from typing import Any

from .ranking import ACTIVATIONS

# Keys of `parameters` that Triton's Python backend reads itself, and the one by which a watchdog tells two loads apart.
OTHERS_KEYS = {"EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "LOADED_AGAIN"}


@dataclass(frozen=True, kw_only=True)
class PostprocessConfig:
    """The `parameters` of `postprocess`, parsed and checked once, when Triton loads the model."""

    activation: str = "softmax"  # what turns the network's outputs into scores, a key of ACTIVATIONS

    def __post_init__(self) -> None:
        if self.activation not in tuple(ACTIVATIONS):  # a tuple: the value may be any JSON
            raise ValueError(
                f"config.pbtxt activation: expected one of {', '.join(ACTIVATIONS)}, got {self.activation!r}"
            )

    @classmethod
    def from_model_config(cls, text: str) -> "PostprocessConfig":
        """Read the model configuration as Triton hands it over: JSON, every parameter a string that holds JSON."""
        entries = json.loads(text).get("parameters", {}).items()
        ours = {key: entry["string_value"] for key, entry in entries if key not in OTHERS_KEYS}
        if unknown := sorted(ours.keys() - {"activation"}):
            raise ValueError(f"config.pbtxt parameters: expected only activation, got also {unknown}")
        return cls(**{key: _parse(key, value) for key, value in ours.items()})


def _parse(key: str, value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f'config.pbtxt {key}: expected JSON such as "softmax", got {value!r}') from error
