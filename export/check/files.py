"""Rules on names, folders and files: without these a model does not load at all."""

from collections.abc import Iterator
from pathlib import Path

from .finding import Finding
from .models import Model, listed, model_folders, read_models

FILL = "run `make export repository`"


def name(model: Model) -> Iterator[Finding]:
    if model.config.name and model.config.name != model.name:
        yield model.finding("name", f"expected '{model.name}', as its folder's, got '{model.config.name}': rename one")


def version_folder(model: Model) -> Iterator[Finding]:
    if not model.versions:
        yield Finding(model.folder, "version", f"expected a folder such as 1/, got none: {FILL}")


def model_file(model: Model) -> Iterator[Finding]:
    if not model.is_variant or model.backend != "tensorrt":  # a variant may name a plan that is yet to be built
        yield from _missing_files(model, FILL)


def unbuilt_plan(model: Model) -> Iterator[Finding]:
    """Only where the variant is to be served now."""
    if model.is_variant and model.backend == "tensorrt":
        yield from _missing_files(model, f"run {model.folder}/configs/build_plan.sh in the container that will serve")


def _missing_files(model: Model, cure: str) -> Iterator[Finding]:
    for version in model.versions:
        if model.model_file is not None and not (version / model.model_file).exists():
            yield Finding(version / model.model_file, "file", f"expected the model's file, got none: {cure}")


def no_models(repository: Path) -> Iterator[Finding]:
    """Where no folder has a configuration: an empty repository, or a folder that is none."""
    if any((folder / "config.pbtxt").is_file() for folder in model_folders(repository)):
        return
    yield Finding(
        repository,
        "models",
        f"expected at least one folder with a config.pbtxt, got none: {where_models_are(repository) or FILL}",
    )


def where_models_are(folder: Path) -> str | None:
    """In words, where `folder` stands beside a repository: above it, as that of an export, or inside."""
    if (folder / "config.pbtxt").is_file():
        return f"this is one model, the repository is {folder.resolve().parent}"
    depths = ("*/*/config.pbtxt", "*/*/*/config.pbtxt")
    repositories = sorted({path.parent.parent for depth in depths for path in folder.glob(depth)})
    return f"there are models in {listed([str(path) for path in repositories])}, give that" if repositories else None


RULES = (name, version_folder, model_file)


def find_unloadable(repository: Path, variant: str | None) -> list[Finding]:
    """Find what keeps tritonserver from loading a model with --model-config-name=`variant`; `python -m server` refuses.

    Apart from the other rules, because these need neither onnx nor OpenCV, whose imports take time.
    """
    models, unreadable = read_models(repository, variant)
    judged = [finding for model in models.values() for rule in (*RULES, unbuilt_plan) for finding in rule(model)]
    return [*unreadable, *judged]
