"""`python -m export check` finds nothing in the repositories that `python -m export model` writes, conversions too."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.torch
from PIL import Image

from export.check.linter import find
from export.check.releases import OURS
from tests.conftest import export_repository
from tests.own_networks import cifar_network, keras_like_graph, trained

TRANSFORM = ["--resize-size", "32", "--interpolation", "bilinear"]
SCALED = ["--crop-size", "32", "--mean", "0.4", "0.5", "0.6", "--std", "0.2", "0.25", "0.3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks of 32 x 32 pixels and 10 classes, their labels, and images to calibrate with."""
    path = tmp_path_factory.mktemp("networks")
    safetensors.torch.save_file(trained(cifar_network(), seed=1).state_dict(), path / "net.safetensors")
    onnx.save(keras_like_graph(size=32, classes=10)[0], path / "keras.onnx")
    (path / "labels.txt").write_text("".join(f"{class_id}\n" for class_id in range(10)))
    (path / "images").mkdir()
    rng = np.random.default_rng(0)
    for index in range(20):
        pixels = rng.integers(0, 256, (4, 5, 3), np.uint8)
        Image.fromarray(pixels).resize((50, 40)).save(path / "images" / f"{index}.png")
    return path


@pytest.mark.parametrize(
    ("network", "flags"),
    [
        ("torch", ["--precision", "fp16"]),
        ("torch", ["--precision", "int8"]),
        ("torch", ["--normalize-in-graph"]),
        ("torch", ["--precision", "int8", "--normalize-in-graph", "--activation", "sigmoid"]),
        ("keras", []),
        ("keras", ["--normalize-in-graph"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_nothing_is_found_in_what_a_conversion_writes(
    folder: Path, tmp_path: Path, network: str, flags: list[str]
) -> None:
    sources = {
        "torch": ["--factory", "tests.own_networks:cifar_network", "--weights", str(folder / "net.safetensors")],
        "keras": ["--onnx", str(folder / "keras.onnx"), "--activation", "none"],
    }
    scaled = SCALED if network == "torch" else []  # the other graph says it itself
    # Of colours that mean nothing to untrained weights, the agreement means nothing either.
    calibration = ["--calibration", str(folder / "images"), "--min-agreement", "0"] if "int8" in flags else []
    own = [*sources[network], "--name", "mine", "--labels", str(folder / "labels.txt"), *TRANSFORM, *scaled]
    assert find(export_repository(tmp_path, *own, *flags, *calibration), OURS) == []
