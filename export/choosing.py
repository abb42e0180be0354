"""The transform that the user chose: defaults, a TOML file, flags."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import tomllib

from python_models.preprocess.config import FrameConfig

from .errors import ExportError
from .recipes import Transform

TRANSFORM_FIELDS = tuple(field.name for field in fields(Transform))


def choose_transform(defaults: Mapping[str, Any], file: Path | None, flags: Mapping[str, Any]) -> Transform:
    """Put together the five values of a transform: `flags` before the TOML `file` before `defaults`.

    A flag that is None was not given. Nothing is guessed: a transform other than the training's costs accuracy, and no
    error shows it. Raises ExportError where a value is missing, unknown or out of range.
    """
    given = {key: value for key, value in flags.items() if value is not None}
    values = {**defaults, **(read_toml(file) if file else {}), **given}
    if missing := [name for name in TRANSFORM_FIELDS if name not in values]:
        flags_of_missing = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise ExportError(
            f"transform: expected all of {', '.join(TRANSFORM_FIELDS)}, those of the weights' training, got no "
            f"{', '.join(missing)}: give {flags_of_missing} or --transform FILE.toml"
        )
    check_transform(values)
    values |= {key: tuple(values[key]) for key in ("mean", "std")}
    return Transform(**values)


def check_transform(values: Mapping[str, Any]) -> None:
    """Apply the checks of `preprocess` itself, which will read these values from config.pbtxt."""
    as_lists: dict[str, Any] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }
    try:
        FrameConfig(**as_lists, max_image_pixels=1)  # a limit of the service, not of the transform
    except ValueError as error:
        raise ExportError(f"transform: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read names and values of a transform from a TOML file."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        reason = error.strerror if isinstance(error, OSError) else error
        raise ExportError(
            f"--transform: expected a TOML file such as `resize_size = 256`, got {path}: {reason}"
        ) from error
    if unknown := sorted(values.keys() - set(TRANSFORM_FIELDS)):
        raise ExportError(
            f"--transform: expected only {', '.join(TRANSFORM_FIELDS)}, got also {', '.join(unknown)} in {path}"
        )
    return values
