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

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from .errors import ExportError
from .files import EXPORTED_FILES, writable
from .recipes import Recipe
from .variants import plan_name, write_variants

ROOT = Path(__file__).resolve().parent.parent
TRACKED_REPOSITORY = ROOT / "model_repository"
TRACKED_RECIPE = "resnet50"
VERSION = "1"


def write_repository(recipe: Recipe, exported: Path, repository: Path) -> None:
    """Write or refresh a complete repository for `recipe` from the files of its export in `exported`.

    Raises ExportError where those files are missing or another recipe's, or `repository` cannot be written.
    """
    check_export(recipe, exported)
    if repository.resolve() == TRACKED_REPOSITORY:
        if recipe.name != TRACKED_RECIPE:
            raise ExportError(
                f"--repository: expected another folder for recipe {recipe.name}, got {repository}, which is that of "
                f"recipe {TRACKED_RECIPE} and tracked"
            )
    else:
        write_configs(recipe, repository)
    model_sha256 = json.loads((exported / "manifest.json").read_text("utf-8"))["onnx"]["sha256"]
    plan = repository / recipe.name / VERSION / plan_name(model_sha256)  # took minutes to build: kept
    for model, files in version_files(recipe, exported).items():
        kept = {plan.name: plan} if model == recipe.name and plan.is_file() else {}
        fill_version_folder(repository / model, {**files, **kept})
    with writable(repository / recipe.name):
        write_variants(repository / recipe.name, model_sha256)


def check_export(recipe: Recipe, exported: Path) -> None:
    missing = [name for name in EXPORTED_FILES if not (exported / name).is_file()]
    if missing:
        raise ExportError(
            f"{exported}: expected an export of {recipe.name}, got one without {', '.join(missing)}: "
            f"run `make export RECIPE={recipe.name}`"
        )
    try:
        exported_recipe = json.loads((exported / "manifest.json").read_text("utf-8"))["recipe"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{exported / 'manifest.json'}: expected the manifest of an export, got another") from error
    if exported_recipe != recipe.name:
        raise ExportError(f"{exported}: expected an export of {recipe.name}, got one of {exported_recipe}")


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


def write_configs(recipe: Recipe, repository: Path) -> None:
    """Write every config.pbtxt of `recipe` into `repository`."""
    for config in configs_for(recipe, read_configs(TRACKED_REPOSITORY)).values():
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
    fit_warmup(classifier)
    return configs


def fit_warmup(config: ModelConfig) -> None:
    """Have every sample of `model_warmup` feed the inputs that the config has now, with random numbers."""
    for sample in config.model_warmup:
        sample.ClearField("inputs")
        for entry in config.input:
            sample.inputs[entry.name].data_type = entry.data_type
            sample.inputs[entry.name].dims[:] = entry.dims
            sample.inputs[entry.name].random_data = True
