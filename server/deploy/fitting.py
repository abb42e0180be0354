"""Whether an export fits the repository that it goes into: its pixels, its tensors, its labels."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from export.classifier import Classifier, read_manifest
from export.errors import ExportError
from export.pretrained import sha256
from export.recipes import Transform
from export.repository import newest_version, read_configs

from ..errors import ServerError
from .layout import Layout

CURE = "export a repository of its own for it (--repository DIR) and serve that"


def check_fits(exported: Path, layout: Layout) -> None:
    """Raise ServerError where the export in a folder is not whole, or the repository's other steps are not for it."""
    try:
        new = read_manifest(exported)
    except ExportError as error:
        raise ServerError(str(error)) from error
    check_sha256(exported)
    old = served_classifier(layout)
    for (name, expected), got in zip(asdict(old).items(), asdict(replace(new, name=old.name)).values(), strict=True):
        if got != expected:
            raise ServerError(f"{exported}: {name}: expected {expected}, as {layout.repository} has, got {got}: {CURE}")
    if labels_in(exported) != labels_in(newest_version(layout.repository / "postprocess")):
        raise ServerError(f"{exported}/labels.txt: expected the labels that `postprocess` serves, got others: {CURE}")


def check_sha256(folder: Path) -> None:
    """Raise ServerError where model.onnx is not the one that the manifest beside it was written for."""
    expected = json.loads((folder / "manifest.json").read_text("utf-8"))["onnx"]["sha256"]
    actual = sha256(folder / "model.onnx")
    if actual != expected:
        raise ServerError(
            f"{folder}/model.onnx: expected sha256 {expected[:16]}..., as its manifest says, got {actual[:16]}...: "
            "damaged, or of another export: copy or export it again"
        )


def served_classifier(layout: Layout) -> Classifier:
    """What the other steps and the configuration of the classifier are made for; config.pbtxt has all of it."""
    configs = read_configs(layout.repository)
    classifier, preprocess = configs[layout.classifier], configs["preprocess"]
    given = {key: json.loads(entry.string_value) for key, entry in preprocess.parameters.items()}
    values = {key: given[key] for key in Transform.__dataclass_fields__}
    transform: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    return Classifier(
        name=layout.classifier,
        transform=Transform(**transform),
        activation=json.loads(configs["postprocess"].parameters["activation"].string_value),
        classes=classifier.output[0].dims[0],
        input_name=classifier.input[0].name,
        output_name=classifier.output[0].name,
        takes_pixels=preprocess.output[0].name == "pixels",
    )


def check_variant(layout: Layout, variant: str | None) -> None:
    """Raise ServerError where the server runs a variant that belongs to one network: TensorRT would take that again."""
    path = layout.folder / "configs" / f"{variant}.pbtxt"
    manifest = json.loads((layout.version_folder(layout.served) / "manifest.json").read_text("utf-8"))
    if path.is_file() and manifest["onnx"]["sha256"][:16] in path.read_text("utf-8"):
        raise ServerError(f"--model-config-name={variant}: expected one for any network, got TensorRT's: {CURE}")


def labels_in(folder: Path) -> list[str]:
    return (folder / "labels.txt").read_text("utf-8").splitlines()
