"""What a model repository is written from, whatever the classifier is made of."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import ExportError
from .files import EXPORTED_FILES
from .recipes import RECIPES, Recipe, Transform

ACTIVATIONS = ("softmax", "sigmoid", "none")  # of python_models/postprocess
STEPS = ("preprocess", "preprocess_frames", "postprocess", "pipeline", "pipeline_frames")


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """The part of a manifest.json, under the same names, from which the configs of a repository follow."""

    name: str  # of the classifier's folder in the repository
    transform: Transform
    activation: str  # what turns the graph's output into scores; "none" where the graph itself does
    classes: int
    input_name: str  # of the graph
    output_name: str
    takes_pixels: bool = False  # uint8, where the graph begins with the normalization


def check_name(name: str) -> None:
    """Raise ExportError for a name that is no folder's, or that of another model of the repository."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or name in STEPS:
        raise ExportError(f"--name: expected letters, digits, _, . and -, and none of {', '.join(STEPS)}, got {name!r}")


def of_recipe(recipe: Recipe) -> Classifier:
    """The classifier of a recipe's own weights; the names are those that to_onnx.py gives."""
    return Classifier(
        name=recipe.name,
        transform=recipe.transform,
        activation="softmax",
        classes=recipe.classes,
        input_name="input",
        output_name="logits",
    )


TRACKED = of_recipe(RECIPES["resnet50"])  # the classifier of model_repository/, whose configs are tracked


def check_is_not_tracked(classifier: Classifier) -> None:
    """Raise ExportError for another classifier by the tracked one's name, which `make serve` would not find."""
    if classifier.name == TRACKED.name and classifier != TRACKED:
        raise ExportError(
            f"--name: expected another name than {TRACKED.name} for a classifier that differs from that recipe in its "
            "transform, classes or tensors, or normalizes in its graph, because model_repository/ is the recipe's: "
            "give one"
        )


def to_manifest(classifier: Classifier) -> dict[str, Any]:
    return asdict(classifier)


def read_manifest(exported: Path) -> Classifier:
    """Read the classifier that was exported to a folder; raise ExportError where there is none, whole and readable."""
    missing = [name for name in EXPORTED_FILES if not (exported / name).is_file()]
    if missing:
        raise ExportError(f"{exported}: expected an export, got a folder without {', '.join(missing)}: export it first")
    path = exported / "manifest.json"
    try:
        return from_manifest(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{path}: expected the manifest of an export, got another: export it again") from error


def from_manifest(manifest: Mapping[str, Any]) -> Classifier:
    given = manifest["transform"].items()
    transform: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given}
    names = ("name", "activation", "classes", "input_name", "output_name", "takes_pixels")
    return Classifier(transform=Transform(**transform), **{name: manifest[name] for name in names})
