"""`python -m export model` of a user's own network: served, and right; and what cannot be served, refused in words."""

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import safetensors.torch
import torch
from onnx import TensorProto, helper
from PIL import Image

from export.__main__ import EXIT_FAILED
from export.__main__ import main as export
from export.repository import read_configs
from tests.asking import ask
from tests.conftest import export_repository
from tests.own_networks import Array, cifar_network, half_graph, keras_like_graph, keras_like_scores, trained
from tests.running import started

BATCHES = (1, 2, 7)
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
FLAGS = ["--interpolation", "bilinear", "--mean", "0.4", "0.5", "0.6", "--std", "0.2", "0.25", "0.3"]
FITTING = ["--resize-size", "32", "--crop-size", "32", *FLAGS]  # of cifar_network
FACTORY = "tests.own_networks:cifar_network"

Scores = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.floating[Any]]]  # pixels (N, H, W, 3) to (N, classes)


def write_labels(folder: Path, classes: int) -> str:
    path = folder / "labels.txt"
    path.write_text("".join(f"Sorte {class_id} ä\n" for class_id in range(classes)), "utf-8")
    return str(path)


def normalized(pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
    """(pixels / 255 - MEAN) / STD, channels first."""
    return torch.from_numpy(((pixels / 255 - MEAN) / STD).transpose(0, 3, 1, 2).astype(np.float32))


def torch_scores(module: torch.nn.Module, activation: Callable[[torch.Tensor], torch.Tensor]) -> Scores:
    def scores(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.floating[Any]]:
        with torch.inference_mode():
            return activation(module(normalized(pixels))).numpy()

    return scores


def softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(dim=1)


def check_served(repository: Path, size: int, classes: int, expected: Scores) -> None:
    """Ask for images of exactly `size` pixels, so that no resize is between their pixels and the network."""
    rng = np.random.default_rng(11)
    with started(repository) as server:
        for batch in BATCHES:
            # Each image of another colour, so that rows and channels that change places show.
            pixels = (rng.uniform(0, 256, (batch, 1, 1, 3)) * rng.uniform(0, 1, (batch, size, size, 3))).astype(
                np.uint8
            )
            answer = ask(server, "grpc", [png(image) for image in pixels], top_k=classes)
            assert not answer["error"].any()
            scores = np.take_along_axis(answer["score"], np.argsort(answer["class_id"], axis=1), axis=1)
            reference = expected(pixels)
            assert np.abs(scores - reference).max() <= 1e-4 * np.abs(reference).max()
            best = reference.argmax(axis=1)
            assert answer["class_id"][:, 0].tolist() == best.tolist()
            assert [label.decode() for label in answer["label"][:, 0]] == [f"Sorte {class_id} ä" for class_id in best]
        assert np.ptp(reference, axis=0).max() > 0.02  # or an answer that never changes would pass


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


# Served


def test_a_keras_like_graph_is_served(tmp_path: Path) -> None:
    """NHWC, uint8, softmax inside, names of TensorFlow: the way of tf2onnx. Only the resize is to be told."""
    model, weights = keras_like_graph(size=24, classes=6)
    onnx.save(model, tmp_path / "keras.onnx")
    flags = ["--activation", "none", "--resize-size", "24", "--interpolation", "bilinear"]
    source = ["--onnx", str(tmp_path / "keras.onnx"), "--labels", write_labels(tmp_path, 6)]
    repository = export_repository(tmp_path / "out", *source, *flags)
    written = onnx.load(tmp_path / "out" / "model.onnx")
    assert [node.op_type for node in written.graph.node[:2]] == ["Cast", "Transpose"]
    assert list(written.graph.node)[2:] == list(model.graph.node)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["name"], manifest["made_from"]) == ("keras", {"onnx": "keras.onnx"})
    assert manifest["added_to_the_graph"] == [
        "input 'normalized' (float32, NCHW) is cast and transposed to 'serving_default_images:0' (uint8, NHWC)"
    ]
    check_served(repository, 24, 6, lambda pixels: keras_like_scores(pixels, weights))


def test_a_torchscript_file_is_served(tmp_path: Path) -> None:
    module = trained(cifar_network(), seed=1)
    torch.jit.trace(module, torch.zeros(1, 3, 32, 32)).save(str(tmp_path / "net.pt"))  # type: ignore[no-untyped-call]
    source = ["--torchscript", str(tmp_path / "net.pt"), "--labels", write_labels(tmp_path, 10)]
    flags = ["--resize-size", "36", "--crop-size", "32", *FLAGS]
    repository = export_repository(tmp_path / "out", *source, *flags)
    crop = slice(2, 34)
    check_served(repository, 36, 10, lambda pixels: torch_scores(module, softmax)(pixels[:, crop, crop]))


def test_a_network_of_32_pixels_from_a_factory_is_served(tmp_path: Path) -> None:
    module = trained(cifar_network(), seed=2)
    safetensors.torch.save_file(module.state_dict(), tmp_path / "net.safetensors")
    (tmp_path / "transform.toml").write_text(
        'resize_size = 32\ncrop_size = 32\ninterpolation = "bicubic"\nmean = [0.4, 0.5, 0.6]\nstd = [1, 1, 1]\n'
    )
    source = ["--factory", FACTORY, "--weights", str(tmp_path / "net.safetensors")]
    labels = ["--labels", write_labels(tmp_path, 10), "--name", "cifar"]
    transform = ["--transform", str(tmp_path / "transform.toml"), "--std", "0.2", "0.25", "0.3"]  # flags win
    export_repository(tmp_path / "out", *source, *labels, *transform)
    # Written again, from the folder of the export alone.
    assert export(["repository", "--output", str(tmp_path / "out")]) == 0
    repository = tmp_path / "out" / "model_repository"
    assert read_configs(repository) == read_configs(tmp_path / "out" / "repository")
    check_served(repository, 32, 10, torch_scores(module, softmax))


def test_a_multi_label_network_is_served(tmp_path: Path) -> None:
    """A float NCHW graph keeps its bytes' meaning and its names; each class has a score of its own."""
    module = trained(cifar_network(), seed=3)
    torch.onnx.export(
        module,
        (torch.zeros(2, 3, 32, 32),),
        tmp_path / "tags.onnx",
        input_names=["picture"],
        output_names=["tags"],
        dynamic_axes={"picture": {0: "n"}, "tags": {0: "n"}},
        dynamo=False,
    )
    source = ["--onnx", str(tmp_path / "tags.onnx"), "--labels", write_labels(tmp_path, 10), "--activation", "sigmoid"]
    repository = export_repository(tmp_path / "out", *source, "--resize-size", "32", *FLAGS)
    configs = read_configs(repository)
    assert (configs["tags"].input[0].name, configs["tags"].output[0].name) == ("picture", "tags")
    step = configs["pipeline"].ensemble_scheduling.step[1]
    assert (dict(step.input_map), dict(step.output_map)) == ({"picture": "normalized"}, {"tags": "logits"})
    check_served(repository, 32, 10, torch_scores(module, torch.sigmoid))


# Refused, each in one sentence with the way out


def refusal(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str, classes: int = 6) -> str:
    """Run the export, which must fail and write nothing; returns its message, one line."""
    labels = ["--labels", write_labels(folder, classes)]
    assert export(["model", *labels, *arguments, "--output", str(folder / "out")]) == EXIT_FAILED
    assert not (folder / "out" / "model.onnx").exists()
    (message,) = capsys.readouterr().err.splitlines()
    return message


Change = Callable[[onnx.ModelProto], None]


def with_second_output(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("means", TensorProto.FLOAT, ["batch", 3]))


def with_second_input(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("training", TensorProto.FLOAT, ["batch"]))


def with_unknown_classes(model: onnx.ModelProto) -> None:
    model.graph.node[-1].op_type = "Identity"
    del model.graph.node[-1].attribute[:]
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == "weights")
    model.graph.input.append(helper.make_tensor_value_info("weights", TensorProto.FLOAT, [3, "classes"]))
    model.graph.initializer.remove(weights)


def with_new_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 22


def with_new_ir(model: onnx.ModelProto) -> None:
    model.ir_version = 11


def with_unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[-1].op_type = "Hardestmax"


def with_fixed_batch_inside(model: onnx.ModelProto) -> None:
    """Two images at a time: no shape of the graph shows it, only a run."""
    for name, shape in (("pairs", [-1, 6]), ("singles", [-1, 3])):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape), name))
    model.graph.node.insert(3, helper.make_node("Reshape", ["means", "pairs"], ["paired"]))
    model.graph.node.insert(4, helper.make_node("Reshape", ["paired", "singles"], ["apart"]))
    model.graph.node[5].input[0] = "apart"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_second_output, "expected one output, got 2 (StatefulPartitionedCall:0, means): cut the graph to one"),
        (with_second_input, "expected one input, got 2 (serving_default_images:0, training): cut the graph to one"),
        (with_new_opset, "expected at most opset 21 and IR version 10, .* got 22 and 8: export it with opset 17"),
        (with_new_ir, "expected at most opset 21 and IR version 10, .* got 17 and 11: export it with opset 17"),
        (with_unknown_operator, "expected a graph that ONNX Runtime 1.19.2 loads, got: .*Hardestmax"),
        (with_fixed_batch_inside, "expected a network for any batch, got a failure at batch 1: .* dynamic batch"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_graph_that_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change, message: str
) -> None:
    model, _ = keras_like_graph()
    change(model)
    path = tmp_path / "keras.onnx"
    path.write_bytes(model.SerializeToString())
    flags = ["--activation", "none", "--resize-size", "24", "--interpolation", "bilinear"]
    assert_matches(refusal(capsys, tmp_path, "--onnx", str(path), *flags), message)


def assert_matches(text: str, pattern: str) -> None:
    """Where only `.*` is special in `pattern`."""
    position = 0
    for part in pattern.split(".*"):
        assert part in text[position:], text
        position = text.index(part, position) + len(part)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            {"batch": 1},
            "expected input 'serving_default_images:0' with a dynamic batch as first dimension, got [1, 24,",
        ),
        ({"data_type": TensorProto.INT8}, "of float or uint8, got tensor(int8): export it again with a float input"),
        ({"classes": 7}, "--labels: expected 7 lines, one for each class that the network scores, got 6"),
    ],
    ids=["fixed batch", "int8", "labels"],
)
def test_a_graph_of_another_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], graph: dict[str, int], message: str
) -> None:
    onnx.save(keras_like_graph(**graph)[0], tmp_path / "keras.onnx")
    flags = ["--activation", "none", "--resize-size", "24", "--interpolation", "bilinear"]
    assert message in refusal(capsys, tmp_path, "--onnx", str(tmp_path / "keras.onnx"), *flags)


def test_an_output_without_its_number_of_classes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["tail"], ["y"]),
        helper.make_node("Slice", ["shape", "start", "end"], ["tail"]),
    ]
    graph = helper.make_graph(
        [nodes[0], nodes[2], nodes[1]],
        "unknown",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "classes"])],
        [onnx.numpy_helper.from_array(np.array([value]), name) for name, value in (("start", 2), ("end", 4))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "unknown.onnx")
    message = refusal(capsys, tmp_path, "--onnx", str(tmp_path / "unknown.onnx"))
    assert "expected output 'y' to be float (N, classes) with a fixed number of classes, got tensor(float)" in message


def test_files_that_are_none_of_their_kind_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    assert "--onnx: expected an ONNX file, got " in refusal(capsys, tmp_path, "--onnx", str(path))
    assert "--onnx: expected an ONNX file, got " in refusal(capsys, tmp_path, "--onnx", str(tmp_path / "missing"))
    for file in (path, tmp_path / "missing"):
        message = refusal(capsys, tmp_path, "--torchscript", str(file))
        assert "--torchscript: expected a file that torch.jit.save wrote, got " in message


class RunsCode(torch.nn.Module):
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.mkdir, (Path("code_was_run"),)  # type: ignore[return-value]


def test_a_pickled_network_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is, and dressed as TorchScript by the file that makes torch take it for that."""
    monkeypatch.chdir(tmp_path)
    torch.save(RunsCode(), "pickled.pt")
    shutil.copy("pickled.pt", "dressed.pt")
    with zipfile.ZipFile("dressed.pt", "a") as archive:
        archive.writestr("pickled/constants.pkl", archive.read("pickled/data.pkl"))
    for name in ("pickled.pt", "dressed.pt"):
        assert "torch.jit.save wrote" in refusal(capsys, tmp_path, "--torchscript", name, *FLAGS)
        assert "weights " in refusal(capsys, tmp_path, "--factory", FACTORY, "--weights", name)
    assert not Path("code_was_run").exists()


def test_torchscript_given_as_weights_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.pt"
    torch.jit.trace(cifar_network().eval(), torch.zeros(1, 3, 32, 32)).save(str(path))  # type: ignore[no-untyped-call]
    message = refusal(capsys, tmp_path, "--factory", FACTORY, "--weights", str(path))
    assert "expected a state_dict, got a TorchScript program: use --torchscript" in message


def build_nothing() -> str:
    return "nothing"


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("no_such_module:build", "got ModuleNotFoundError: No module named 'no_such_module': start from the folder"),
        ("tests.own_networks:missing", "got AttributeError: "),
        ("tests.own_networks", "expected module:callable, such as my_models:build, got tests.own_networks"),
        ("tests.test_own_classifiers:build_nothing", "to return a torch.nn.Module, got str"),
    ],
    ids=["module", "callable", "colon", "no network"],
)
def test_a_factory_that_builds_no_network_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factory: str, message: str
) -> None:
    torch.save(cifar_network().state_dict(), tmp_path / "net.pth")
    assert message in refusal(capsys, tmp_path, "--factory", factory, "--weights", str(tmp_path / "net.pth"))


def test_weights_of_another_network_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(torch.nn.Linear(2, 3).state_dict(), tmp_path / "net.pth")
    message = refusal(capsys, tmp_path, "--factory", FACTORY, "--weights", str(tmp_path / "net.pth"))
    assert f"expected exactly the tensors of {FACTORY}, got " in message


def cifar_arguments(folder: Path) -> list[str]:
    torch.save(trained(cifar_network(), seed=4).state_dict(), folder / "net.pth")
    return ["--factory", FACTORY, "--weights", str(folder / "net.pth")]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "got no resize_size, crop_size, interpolation, mean, std: give --resize-size, --crop-size, --interpol"),
        (["--crop-size", "40", "--resize-size", "32", *FLAGS], "crop_size: expected at most resize_size 32, got 40"),
        (
            ["--crop-size", "8", "--resize-size", "8", *FLAGS],
            "got: .* is --crop-size that of its training?",
        ),
        (
            [*FITTING, "--activation", "none"],
            "expected a network whose outputs are scores from 0 to 1, .* use softmax",
        ),
        ([*FITTING, "--name", "pipeline"], "--name: expected letters, digits, _, . and -, and none of preprocess, "),
        ([*FITTING, "--name", "resnet50"], "--name: expected another name than resnet50"),
    ],
    ids=["nothing", "crop", "small crop", "no activation", "step's name", "tracked name"],
)
def test_options_that_do_not_fit_the_network_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert_matches(refusal(capsys, tmp_path, *cifar_arguments(tmp_path), *flags, classes=10), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "resize = 32",
            "--transform: expected only resize_size, crop_size, interpolation, mean, std, got also resize in",
        ),
        ("resize_size: 32", "--transform: expected a TOML file such as `resize_size = 256`, got "),
        (
            'mean = [0.5, 0.5]\nresize_size = 32\ncrop_size = 32\ninterpolation = "bilinear"\nstd = [1, 1, 1]',
            "mean: exp",
        ),
        (
            'mean = [nan, 0, 0]\nresize_size = 32\ncrop_size = 32\ninterpolation = "bilinear"\nstd = [1, 1, 1]',
            "mean: exp",
        ),
    ],
    ids=["unknown", "no TOML", "two numbers", "nan"],
)
def test_a_transform_file_with_a_mistake_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "transform.toml"
    path.write_text(text)
    flags = ["--resize-size", "32", "--crop-size", "32", "--interpolation", "bilinear", "--std", "1", "1", "1"]
    arguments = [*cifar_arguments(tmp_path), *flags, "--transform", str(path)]
    assert message in refusal(capsys, tmp_path, *arguments, classes=10)


def test_a_uint8_graph_with_another_normalization_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(keras_like_graph()[0], tmp_path / "keras.onnx")
    source = ["--onnx", str(tmp_path / "keras.onnx"), "--activation", "none", "--resize-size", "24"]
    message = refusal(capsys, tmp_path, *source, *FLAGS)
    assert "transform: expected mean (0.0, 0.0, 0.0), because the graph's input" in message
    assert message.endswith("got (0.4, 0.5, 0.6): leave mean away")


def test_a_second_softmax_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(keras_like_graph()[0], tmp_path / "keras.onnx")
    source = ["--onnx", str(tmp_path / "keras.onnx"), "--resize-size", "24", "--interpolation", "bilinear"]
    message = refusal(capsys, tmp_path, *source)
    assert "got one whose outputs are probabilities already, each row with the sum 1: use --activation none" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a\n\nb\n", "got none in line 2"), (b"\xff\xfe", "not UTF-8"), (None, "No such file")],
    ids=["blank line", "Latin-1", "missing"],
)
def test_labels_that_cannot_be_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    path = tmp_path / "names.txt"
    if content is not None:
        path.write_bytes(content)
    arguments = [*cifar_arguments(tmp_path), *FITTING, "--labels", str(path), "--output", str(tmp_path / "out")]
    assert export(["model", *arguments]) == EXIT_FAILED
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--onnx", "x.onnx"], "--onnx needs --labels FILE"),
        (["--factory", "a:b", "--labels", "x"], "--factory needs --weights FILE"),
        (["--torchscript", "x.pt", "--labels", "x", "--weights", "y.pth"], "--weights is not for --torchscript"),
        (["--onnx", "x.onnx", "--recipe", "resnet18"], "not allowed with argument"),
    ],
    ids=["no labels", "no weights", "weights twice", "two sources"],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        export(["model", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


# The graph


def test_the_same_input_gives_the_same_bytes_and_readable_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        arguments = [*cifar_arguments(tmp_path), *FITTING, "--labels", write_labels(tmp_path, 10)]
        assert export(["model", *arguments, "--output", str(tmp_path / name)]) == 0
    for file in ("model.onnx", "labels.txt", "manifest.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    graph = onnx.load(tmp_path / "a" / "model.onnx").graph
    assert [node.op_type for node in graph.node] == ["Conv", "Relu", "AveragePool", "Flatten", "Gemm"]
    assert sorted(tensor.name for tensor in graph.initializer) == ["0.bias", "0.weight", "5.bias", "5.weight"]


def fitted(tmp_path: Path, flags: list[str], **graph: int) -> tuple[onnx.ModelProto, Array]:
    model, weights = keras_like_graph(**graph)
    onnx.save(model, tmp_path / "keras.onnx")
    source = ["--onnx", str(tmp_path / "keras.onnx"), "--labels", write_labels(tmp_path, 6), "--activation", "none"]
    assert export(["model", *source, *flags, "--output", str(tmp_path / "out")]) == 0
    return onnx.load(tmp_path / "out" / "model.onnx"), weights


@pytest.mark.parametrize("size", [24, "side"])
def test_a_float_graph_is_transposed_only(tmp_path: Path, size: int | str) -> None:
    """Also one that takes any size: the transform says which it gets."""
    flags = ["--resize-size", "24", "--crop-size", "24", *FLAGS]
    model, _ = fitted(tmp_path, flags, data_type=TensorProto.FLOAT, size=size)  # type: ignore[arg-type]
    assert [node.op_type for node in model.graph.node[:2]] == ["Transpose", "Cast"]  # the Cast is the graph's own
    shape = [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert shape == ["batch", 3, 24, 24]


def test_half_precision_is_cast(tmp_path: Path) -> None:
    flags = ["--resize-size", "24", "--crop-size", "24", *FLAGS]
    model, _ = fitted(tmp_path, flags, data_type=TensorProto.FLOAT16)
    assert [node.op_type for node in model.graph.node[:2]] == ["Cast", "Transpose"]


HALF = ["--resize-size", "24", *FLAGS]


def test_convolutions_in_half_precision_may_round_elsewhere(tmp_path: Path) -> None:
    onnx.save(half_graph(), tmp_path / "half.onnx")
    source = ["--onnx", str(tmp_path / "half.onnx"), "--labels", write_labels(tmp_path, 6)]
    assert export(["model", *source, *HALF, "--output", str(tmp_path / "out")]) == 0
    difference = json.loads((tmp_path / "out" / "manifest.json").read_text())["largest_relative_difference"]
    assert 1e-4 < difference < 1e-3  # float32 is held to less


def test_half_precision_that_errs_by_more_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.own_graph.MAX_HALF_DIFFERENCE", 1e-5)
    onnx.save(half_graph(), tmp_path / "half.onnx")
    message = refusal(capsys, tmp_path, "--onnx", str(tmp_path / "half.onnx"), *HALF)
    assert message.startswith("model.onnx: expected outputs within 1e-05 of those of what it was made from at batches ")
    assert message.endswith(": export it in float32, and give --precision fp16 for half precision")
