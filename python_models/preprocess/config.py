"""The settings of `preprocess` and `preprocess_frames`, read from config.pbtxt."""

import json
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

from .decode import Limits

Config = TypeVar("Config", bound="FrameConfig")

# Keys of `parameters` that Triton's Python backend reads itself, and the one by which a watchdog tells two loads apart.
OTHERS_KEYS = {"EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "LOADED_AGAIN"}


@dataclass(frozen=True, kw_only=True)
class FrameConfig:
    """The `parameters` of `preprocess_frames`, parsed and checked once, when Triton loads the model."""

    resize_size: int  # pixels, shorter side
    crop_size: int  # pixels, both sides
    interpolation: str  # "bilinear" or "bicubic", both antialiased
    mean: list[float]  # R, G, B on the [0, 1] scale
    std: list[float]  # R, G, B on the [0, 1] scale
    max_image_pixels: int  # width x height of one decoded image

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and (type(value) is not int or value < 1):
                raise ValueError(f"{field.name}: expected a positive integer, got {value!r}")
        if self.crop_size > self.resize_size:
            raise ValueError(f"crop_size: expected at most resize_size {self.resize_size}, got {self.crop_size}")
        if self.interpolation not in ("bilinear", "bicubic"):
            raise ValueError(f"interpolation: expected bilinear or bicubic, got {self.interpolation!r}")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not isinstance(values, list) or len(values) != 3 or not all(map(_is_number, values)):
                raise ValueError(f"{name}: expected three numbers for R, G, B, got {values!r}")
        if min(self.std) <= 0:
            raise ValueError(f"std: expected three numbers above 0, got {self.std!r}")

    @classmethod
    def from_model_config(cls: type[Config], text: str) -> Config:  # not typing.Self: the container's Python is 3.10
        """Read the model configuration as Triton hands it over: JSON, every parameter a string that holds JSON."""
        entries = json.loads(text).get("parameters", {}).items()
        ours = {key: entry["string_value"] for key, entry in entries if key not in OTHERS_KEYS}
        wanted = {field.name for field in fields(cls)}
        try:
            if ours.keys() != wanted:
                missing, unknown = sorted(wanted - ours.keys()), sorted(ours.keys() - wanted)
                raise ValueError(f"parameters: missing {missing}, unknown {unknown}")
            return cls(**{key: _parse(key, value) for key, value in ours.items()})
        except ValueError as error:
            raise ValueError(f"config.pbtxt {error}") from error


@dataclass(frozen=True, kw_only=True)
class FileConfig(FrameConfig):
    """The `parameters` of `preprocess`: those of files come on top of those of frames."""

    exif_orientation: str  # "apply" or "ignore"
    max_image_bytes: int  # of one encoded file
    max_image_frames: int  # of one animation
    max_jpeg_scans: int  # of one progressive JPEG of max_image_pixels

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exif_orientation not in ("apply", "ignore"):
            raise ValueError(f"exif_orientation: expected apply or ignore, got {self.exif_orientation!r}")

    @cached_property
    def limits(self) -> Limits:
        return Limits(
            max_image_bytes=self.max_image_bytes,
            max_image_pixels=self.max_image_pixels,
            max_image_frames=self.max_image_frames,
            max_jpeg_scans=self.max_jpeg_scans,
        )


# The one input of a model -> its settings: files are decoded, frames are not.
CONFIGS: dict[str, type[FrameConfig]] = {"raw_image": FileConfig, "frame": FrameConfig}


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _parse(key: str, value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f'{key}: expected JSON such as 256 or [0.5, 0.5, 0.5] or "bilinear", got {value!r}') from error
