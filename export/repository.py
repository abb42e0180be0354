"""Model repositories: the tracked one is filled, any other is written from it and an export.

In a repository each model has a config.pbtxt and a version folder, `1/`. The configs of the tracked model_repository/
are those of recipe resnet50; other classifiers take them as their pattern. The version folders hold copies, of code
from python_models/ and of the files of an export, because a link would break in a container's mount.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelEnsembling

from .classifier import STEPS, TRACKED, Classifier, from_manifest
from .errors import ExportError
from .files import writable
from .tuned import refresh_tuned
from .variants import plan_name, write_variants

ROOT = Path(__file__).resolve().parent.parent
TRACKED_REPOSITORY = ROOT / "model_repository"
VERSION = "1"


def write_repository(classifier: Classifier, exported: Path, repository: Path) -> None:
    """Write or refresh a complete repository for `classifier` from the files of its export in `exported`.

    Where versions were deployed (server/deploy), those of the network stay as they are, and the rest is refreshed.
    Raises ExportError where `repository` cannot be written, or is the tracked one and that of another classifier; or
    where versions were deployed that the rest would not fit then.
    """
    is_deployed = has_deployed_versions(repository / classifier.name)
    if is_deployed:
        check_fits_deployed(classifier, exported, repository)
    if repository.resolve() == TRACKED_REPOSITORY:
        if classifier != TRACKED:
            raise ExportError(
                f"--repository: expected another folder for {classifier.name}, got {repository}, which is that of "
                f"recipe {TRACKED.name} and tracked"
            )
    else:
        write_configs(classifier, repository)
    manifest = json.loads((exported / "manifest.json").read_text("utf-8"))
    model_sha256 = manifest["onnx"]["sha256"]
    plan = repository / classifier.name / VERSION / plan_name(model_sha256)  # took minutes to build: kept
    for model, files in version_files(classifier, exported).items():
        if model == classifier.name and is_deployed:
            continue
        kept = {plan.name: plan} if model == classifier.name and plan.is_file() else {}
        fill_version_folder(repository / model, {**files, **kept})
    refresh_variants(repository / classifier.name)
    with writable(repository):
        refresh_tuned(repository)


def has_deployed_versions(model: Path) -> bool:
    """Whether a classifier has versions besides 1, or retired ones."""
    return any(re.fullmatch(r"(retired-)?\d+", path.name) and path.name != VERSION for path in model.glob("*"))


def check_fits_deployed(classifier: Classifier, exported: Path, repository: Path) -> None:
    served = from_manifest(json.loads((newest_version(repository / classifier.name) / "manifest.json").read_text()))
    labels = [folder / "labels.txt" for folder in (exported, repository / "postprocess" / VERSION)]
    if replace(served, name=classifier.name) != classifier or labels[0].read_bytes() != labels[1].read_bytes():
        raise ExportError(
            f"{exported}: expected an export with the transform, classes and labels of the deployed versions in "
            f"{repository}, got another: give it a repository of its own (--repository DIR), or remove that one"
        )


def newest_version(model: Path) -> Path:
    """The version folder that Triton serves."""
    return max((path for path in model.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def refresh_variants(model: Path) -> None:
    """Write the variants of a classifier for its newest version, which Triton serves; the manifest there says of what.

    Raises ExportError where they cannot be written.
    """
    newest = newest_version(model)
    manifest = json.loads((newest / "manifest.json").read_text("utf-8"))
    with writable(model):
        write_variants(model, manifest["onnx"]["sha256"], manifest["conversion"]["precision"], newest.name)


def version_files(classifier: Classifier, exported: Path) -> dict[str, dict[str, Path]]:
    """Which files stand in each model's version folder: their paths in there, and what they are copies of."""
    preprocess, postprocess = code_of("preprocess"), code_of("postprocess")
    return {
        "preprocess": preprocess,
        "preprocess_frames": preprocess,
        classifier.name: {name: exported / name for name in ("model.onnx", "manifest.json")},
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


def write_configs(classifier: Classifier, repository: Path) -> None:
    """Write every config.pbtxt of `classifier` into `repository`."""
    tracked = read_configs(TRACKED_REPOSITORY)
    pattern = {name: tracked[name] for name in (*STEPS, TRACKED.name)}  # not a canary that may be there
    for config in configs_for(classifier, pattern).values():
        folder = repository / config.name
        with writable(folder):
            (folder / "config.pbtxt").write_text(text_format.MessageToString(config), "utf-8")


def read_configs(repository: Path) -> dict[str, ModelConfig]:
    """Parse each config.pbtxt of a repository with Triton's protobuf: folder name to ModelConfig."""
    return {
        path.parent.name: text_format.Parse(path.read_text("utf-8"), ModelConfig())
        for path in sorted(repository.glob("*/config.pbtxt"))
    }


def configs_for(classifier: Classifier, pattern: Mapping[str, ModelConfig]) -> dict[str, ModelConfig]:
    """Fit the configs of recipe resnet50 to `classifier`: names, dims, and what belongs to its weights."""
    configs = {}
    for name, original in pattern.items():
        config = ModelConfig()
        config.CopyFrom(original)
        configs[name] = config
    fit_classifier(configs.setdefault(classifier.name, configs.pop(TRACKED.name)), classifier)
    crop_size = classifier.transform.crop_size
    configs["postprocess"].input[0].dims[:] = [classifier.classes]
    configs["postprocess"].parameters["activation"].string_value = json.dumps(classifier.activation)
    for name in ("preprocess", "preprocess_frames"):
        configs[name].output[0].dims[:] = [3, crop_size, crop_size]
        for key, value in asdict(classifier.transform).items():
            configs[name].parameters[key].string_value = json.dumps(value)
    for name in ("pipeline", "pipeline_frames"):
        fit_step(configs[name].ensemble_scheduling.step[1], classifier)
    if classifier.takes_pixels:
        hand_over_pixels(configs, classifier)
    fit_warmup(configs[classifier.name])
    return configs


def hand_over_pixels(configs: Mapping[str, ModelConfig], classifier: Classifier) -> None:
    """Have preprocess hand over `pixels`, uint8, in place of `normalized`, float32, to a graph that normalizes."""
    pixels, uint8 = "pixels", DataType.Value("TYPE_UINT8")
    configs[classifier.name].input[0].data_type = uint8
    for name in ("preprocess", "preprocess_frames"):
        configs[name].output[0].name, configs[name].output[0].data_type = pixels, uint8
    for name in ("pipeline", "pipeline_frames"):
        first, second, _ = configs[name].ensemble_scheduling.step
        del first.output_map["normalized"]
        first.output_map[pixels] = pixels
        second.input_map[classifier.input_name] = pixels


def fit_classifier(config: ModelConfig, classifier: Classifier) -> None:
    config.name = classifier.name
    config.input[0].name, config.output[0].name = classifier.input_name, classifier.output_name
    config.input[0].dims[:] = [3, classifier.transform.crop_size, classifier.transform.crop_size]
    config.output[0].dims[:] = [classifier.classes]


def fit_step(step: ModelEnsembling.Step, classifier: Classifier) -> None:
    """Name the classifier in the ensemble, and map the names of its graph to the ensemble's own."""
    step.model_name = classifier.name
    for tensors, name in ((step.input_map, classifier.input_name), (step.output_map, classifier.output_name)):
        (of_ensemble,) = tensors.values()
        tensors.clear()
        tensors[name] = of_ensemble


def fit_warmup(config: ModelConfig) -> None:
    """Have every sample of `model_warmup` feed the inputs that the config has now, with random numbers."""
    for sample in config.model_warmup:
        sample.ClearField("inputs")
        for entry in config.input:
            sample.inputs[entry.name].data_type = entry.data_type
            sample.inputs[entry.name].dims[:] = entry.dims
            sample.inputs[entry.name].random_data = True
