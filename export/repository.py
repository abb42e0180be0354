"""Model repositories: the tracked one is filled, any other is written from it and a recipe.

In a repository each model has a config.pbtxt and a version folder, `1/`. The configs of the tracked model_repository/
are those of recipe resnet50; other recipes take them as their pattern. The version folders hold copies, of code from
python_models/ and of the files of an export, because a link would break in a container's mount.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from .errors import ExportError
from .files import EXPORTED_FILES, writable
from .recipes import Recipe

ROOT = Path(__file__).resolve().parent.parent
TRACKED_REPOSITORY = ROOT / "model_repository"
TRACKED_RECIPE = "resnet50"
VERSION = "1"


def write_repository(recipe: Recipe, exported: Path, repository: Path) -> None:
    """Write or refresh a complete repository for `recipe` from the files of its export in `exported`.

    Raises ExportError where those files are missing or another recipe's, or `repository` cannot be written.
    """
    manifest = check_export(recipe, exported)
    if repository.resolve() == TRACKED_REPOSITORY:
        if takes_pixels(manifest):
            raise ExportError(
                f"--repository: expected another folder for a graph that normalizes, got {repository}, which is "
                "tracked and whose preprocess normalizes"
            )
        if recipe.name != TRACKED_RECIPE:
            raise ExportError(
                f"--repository: expected another folder for recipe {recipe.name}, got {repository}, which is that of "
                f"recipe {TRACKED_RECIPE} and tracked"
            )
    else:
        write_configs(recipe, repository, takes_pixels(manifest))
    for model, files in version_files(recipe, exported).items():
        fill_version_folder(repository / model, files)


def check_export(recipe: Recipe, exported: Path) -> dict[str, Any]:
    """Return the manifest; raise ExportError where files are missing or another recipe's."""
    missing = [name for name in EXPORTED_FILES if not (exported / name).is_file()]
    if missing:
        raise ExportError(
            f"{exported}: expected an export of {recipe.name}, got one without {', '.join(missing)}: "
            f"run `make export RECIPE={recipe.name}`"
        )
    try:
        manifest: dict[str, Any] = json.loads((exported / "manifest.json").read_text("utf-8"))
        exported_recipe = manifest["recipe"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{exported / 'manifest.json'}: expected the manifest of an export, got another") from error
    if exported_recipe != recipe.name:
        raise ExportError(f"{exported}: expected an export of {recipe.name}, got one of {exported_recipe}")
    return manifest


def takes_pixels(manifest: Mapping[str, Any]) -> bool:
    """Whether the graph begins with the normalization, `--normalize-in-graph`."""
    return bool(manifest["onnx"]["input"]["data_type"] == "UINT8")


def version_files(recipe: Recipe, exported: Path) -> dict[str, dict[str, Path]]:
    """Which files stand in each model's version folder: their paths in there, and what they are copies of."""
    preprocess, postprocess = code_of("preprocess"), code_of("postprocess")
    return {
        "preprocess": preprocess,
        "preprocess_frames": preprocess,
        recipe.name: {name: exported / name for name in ("model.onnx", "manifest.json")},
        "postprocess": {**postprocess, "labels.txt": exported / "labels.txt"},
        "pipeline": {},  # an ensemble has no files, but Triton wants the folder
        "pipeline_frames": {},
    }


def code_of(step: str) -> dict[str, Path]:
    folder = ROOT / "python_models" / step
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}


def fill_version_folder(model: Path, files: Mapping[str, Path]) -> None:
    """Replace the version folder of `model` by one with copies of `files`."""
    with writable(model), tempfile.TemporaryDirectory(dir=model, prefix=".new-") as name:
        new = Path(name, VERSION)
        new.mkdir()
        for path, source in files.items():
            (new / path).parent.mkdir(exist_ok=True)
            shutil.copyfile(source, new / path)
        shutil.rmtree(model / VERSION, ignore_errors=True)
        new.rename(model / VERSION)


def write_configs(recipe: Recipe, repository: Path, pixels: bool) -> None:
    """Write every config.pbtxt of `recipe` into `repository`; `pixels` where its graph normalizes."""
    configs = configs_for(recipe, read_configs(TRACKED_REPOSITORY))
    if pixels:
        hand_over_pixels(configs, recipe.name)
    for config in configs.values():
        folder = repository / config.name
        with writable(folder):
            (folder / "config.pbtxt").write_text(text_format.MessageToString(config), "utf-8")


def read_configs(repository: Path) -> dict[str, ModelConfig]:
    """Parse each config.pbtxt of a repository with Triton's protobuf: folder name to ModelConfig."""
    return {
        path.parent.name: text_format.Parse(path.read_text("utf-8"), ModelConfig())
        for path in sorted(repository.glob("*/config.pbtxt"))
    }


def configs_for(recipe: Recipe, pattern: Mapping[str, ModelConfig]) -> dict[str, ModelConfig]:
    """Fit the configs of recipe resnet50 to `recipe`: names, dims, and the transform of its weights."""
    configs = {}
    for name, original in pattern.items():
        config = ModelConfig()
        config.CopyFrom(original)
        configs[name] = config
    classifier = configs[recipe.name] = configs.pop(TRACKED_RECIPE)
    classifier.name = recipe.name
    crop_size = recipe.transform.crop_size
    classifier.input[0].dims[:] = [3, crop_size, crop_size]
    classifier.output[0].dims[:] = [recipe.classes]
    configs["postprocess"].input[0].dims[:] = [recipe.classes]
    for name in ("preprocess", "preprocess_frames"):
        configs[name].output[0].dims[:] = [3, crop_size, crop_size]
        for key, value in asdict(recipe.transform).items():
            configs[name].parameters[key].string_value = json.dumps(value)
    for name in ("pipeline", "pipeline_frames"):
        configs[name].ensemble_scheduling.step[1].model_name = recipe.name
    return configs


def hand_over_pixels(configs: Mapping[str, ModelConfig], classifier: str) -> None:
    """Have preprocess hand over `pixels`, uint8, in place of `normalized`, float32, to a graph that normalizes."""
    pixels, uint8 = "pixels", DataType.Value("TYPE_UINT8")
    configs[classifier].input[0].data_type = uint8
    for name in ("preprocess", "preprocess_frames"):
        configs[name].output[0].name, configs[name].output[0].data_type = pixels, uint8
    for name in ("pipeline", "pipeline_frames"):
        first, second, _ = configs[name].ensemble_scheduling.step
        del first.output_map["normalized"]
        first.output_map[pixels] = pixels
        second.input_map[configs[classifier].input[0].name] = pixels
