"""The config.pbtxt files: Triton's own parser and Triton itself accept them, and they are those of their recipe."""

import shutil
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.classifier import of_recipe
from export.recipes import RECIPES
from export.repository import TRACKED_REPOSITORY, configs_for, read_configs
from server.errors import ServerError
from tests.asking import ask
from tests.conftest import export_repository
from tests.running import started

MODELS = {"preprocess", "preprocess_frames", "resnet50", "postprocess", "pipeline", "pipeline_frames"}


def test_every_model_has_a_config_that_parses() -> None:
    configs = read_configs(TRACKED_REPOSITORY)
    assert configs.keys() == MODELS
    assert all(config.name == folder for folder, config in configs.items())


def test_the_tracked_repository_is_that_of_recipe_resnet50() -> None:
    tracked = read_configs(TRACKED_REPOSITORY)
    assert configs_for(of_recipe(RECIPES["resnet50"]), tracked) == tracked


def test_another_recipe_brings_its_own_transform_and_names() -> None:
    configs = configs_for(of_recipe(RECIPES["efficientnet_lite0"]), read_configs(TRACKED_REPOSITORY))
    assert configs.keys() == MODELS - {"resnet50"} | {"efficientnet_lite0"}
    assert configs["efficientnet_lite0"].name == "efficientnet_lite0"
    for name in ("preprocess", "preprocess_frames"):
        assert configs[name].parameters["mean"].string_value == str([127 / 255] * 3)
    for name in ("pipeline", "pipeline_frames"):
        steps = [step.model_name for step in configs[name].ensemble_scheduling.step]
        assert steps == [name.replace("pipeline", "preprocess"), "efficientnet_lite0", "postprocess"]


def test_an_ensembles_batch_is_at_most_that_of_each_step() -> None:
    configs = read_configs(TRACKED_REPOSITORY)
    for ensemble in ("pipeline", "pipeline_frames"):
        for step in configs[ensemble].ensemble_scheduling.step:
            assert configs[ensemble].max_batch_size <= configs[step.model_name].max_batch_size


def test_the_tracked_files_load_with_auto_complete_disabled(photos: Path, tmp_path: Path) -> None:
    repository = export_repository(tmp_path, "--weights", "random")
    for path in TRACKED_REPOSITORY.glob("*/config.pbtxt"):
        shutil.copy(path, repository / path.parent.name)
    with started(repository, "--disable-auto-complete-config") as server:
        answer = ask(server, "grpc", [(photos / "coffee.png").read_bytes()])
    assert b"random weights" in answer["label"][0, 0]


def test_a_typo_in_a_parameter_stops_the_load_and_is_named(lite0: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(lite0, repository)
    path = repository / "preprocess" / "config.pbtxt"
    config = text_format.Parse(path.read_text(), ModelConfig())
    config.parameters["resize"].string_value = config.parameters["resize_size"].string_value
    del config.parameters["resize_size"]
    path.write_text(text_format.MessageToString(config))
    with (
        pytest.raises(
            ServerError, match=r"model preprocess cannot be loaded: .*missing \['resize_size'\], unknown \['resize'\]"
        ),
        started(repository),
    ):
        pass
