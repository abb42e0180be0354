"""fp16, int8 and the normalization in the graph: against fp32, through the real server and by themselves."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import torch

from export.__main__ import EXIT_FAILED
from export.__main__ import main as export
from export.calibration import read_pixels
from export.classifier import TRACKED, check_is_not_tracked
from export.comparison import decisions, logits_of, normalized
from export.errors import ExportError
from export.in_graph import normalize_in_graph
from export.precision import halves, tidied
from export.quantization import BINS, Observed, best_range, quantize
from export.recipes import RECIPES, Transform
from export.rounding import round_together
from export.to_onnx import write_onnx
from export.variants import CUDA, OF_TENSORRT
from server.process import TritonServer
from tests.asking import ask, ask_model, connect, padded, tensor
from tests.conftest import RESNET50_WEIGHTS, SHARED, export_repository, need_shared
from tests.running import started

LITE0 = RECIPES["efficientnet_lite0"]
SMALL = Transform(
    resize_size=36, crop_size=32, interpolation="bilinear", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
)
SERVED_PHOTOS = ("coffee.png", "chelsea.png", "motorcycle_left.png", "rocket.jpg")


@pytest.fixture(scope="module")
def files(photos: Path) -> list[bytes]:
    return [(photos / name).read_bytes() for name in SERVED_PHOTOS]


@pytest.fixture(scope="module")
def pixels_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """efficientnet_lite0 in float32, normalizing in the graph."""
    folder = tmp_path_factory.mktemp("pixels")
    with started(export_repository(folder, "--recipe", LITE0.name, "--normalize-in-graph")) as server:
        yield server


@pytest.fixture(scope="module")
def int8_server(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Iterator[TritonServer]:
    """efficientnet_lite0 in 8 bits, normalizing in the graph; calibrated with few images."""
    arguments = ["--precision", "int8", "--calibration", str(photos), "--min-agreement", "0.6", "--normalize-in-graph"]
    folder = tmp_path_factory.mktemp("int8")
    with started(export_repository(folder, "--recipe", LITE0.name, *arguments)) as server:
        yield server


def export_small(graph: Path, folder: Path, *options: str) -> int:
    """Export a graph of 32 x 32 pixels to 10 logits, with the transform SMALL, to folder/out."""
    (folder / "labels.txt").write_text("".join(f"{number}\n" for number in range(10)))
    sizes = ["--resize-size", str(SMALL.resize_size), "--crop-size", str(SMALL.crop_size)]
    colours = ["--mean", *map(str, SMALL.mean), "--std", *map(str, SMALL.std)]
    files = ["--onnx", str(graph), "--labels", str(folder / "labels.txt"), "--output", str(folder / "out")]
    return export(["model", *files, *sizes, *colours, "--interpolation", SMALL.interpolation, *options])


def model_input_and_logits(server: TritonServer, files: list[bytes], output: str) -> tuple[npt.NDArray[Any], Any]:
    """What `preprocess` hands over, and what the classifier makes of it."""
    client = connect(server, "grpc")
    try:
        handed = client.infer("preprocess", [tensor("grpc", "raw_image", padded(files))]).as_numpy(output)
        data_type = "UINT8" if handed.dtype == np.uint8 else "FP32"
        answer = client.infer(LITE0.name, [tensor("grpc", "input", handed, data_type)])
        return handed, answer.as_numpy("logits")
    finally:
        client.close()


# The normalization in the graph


def test_normalized_in_the_graph_the_logits_are_the_same(
    server: TritonServer, pixels_server: TritonServer, files: list[bytes]
) -> None:
    floats, expected = model_input_and_logits(server, files, "normalized")
    pixels, actual = model_input_and_logits(pixels_server, files, "pixels")
    assert pixels.dtype == np.uint8
    assert (pixels.shape, 4 * pixels.nbytes) == (floats.shape, floats.nbytes)
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max()


def test_normalized_in_the_graph_the_pipelines_answer_the_same(
    server: TritonServer, pixels_server: TritonServer, files: list[bytes]
) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (1, 300, 411, 3), np.uint8)
    for answers in (
        [ask(each, "grpc", files) for each in (server, pixels_server)],
        [ask_model(each, "grpc", "pipeline_frames", "frame", frame) for each in (server, pixels_server)],
    ):
        expected, actual = answers
        np.testing.assert_array_equal(actual["class_id"], expected["class_id"])
        np.testing.assert_allclose(actual["score"], expected["score"], atol=1e-4)


def test_where_preprocess_hands_over_pixels_a_bad_image_still_fails_alone(
    pixels_server: TritonServer, files: list[bytes]
) -> None:
    answer = ask(pixels_server, "grpc", [files[0], b"no image"])
    assert answer["error"][0, 0] == b""
    assert answer["error"][1, 0].startswith(b"preprocess: not_an_image:")
    assert answer["label"][0, 0] == b"espresso"


def test_every_level_is_normalized_as_the_formula_says() -> None:
    transform = RECIPES["resnet50"].transform
    image = onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 3, 256, 1])
    output = onnx.helper.make_tensor_value_info("same", onnx.TensorProto.FLOAT, ["batch", 3, 256, 1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["image"], ["same"])], "g", [image], [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    normalize_in_graph(model, transform)
    onnx.checker.check_model(model, full_check=True)
    levels = np.broadcast_to(np.arange(256, dtype=np.uint8).reshape(1, 1, 256, 1), (1, 3, 256, 1))
    (actual,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": levels})
    for channel in range(3):
        expected = [(level / 255 - transform.mean[channel]) / transform.std[channel] for level in range(256)]
        # float32 rounding of values up to 2.7 errs by 5e-7; dividing by 256 by 0.017
        np.testing.assert_allclose(actual[0, channel, :, 0], expected, rtol=0, atol=1e-6)
    with pytest.raises(ExportError, match=r"expected a graph whose input is FLOAT \[N, 3, H, W\], got UINT8"):
        normalize_in_graph(model, transform)


def test_a_graph_that_normalizes_is_not_for_the_tracked_repository() -> None:
    with pytest.raises(ExportError, match="--name: expected another name than resnet50"):
        check_is_not_tracked(dataclasses.replace(TRACKED, takes_pixels=True))


# The check of the file that is written


def test_a_wrong_normalization_in_the_graph_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(model: onnx.ModelProto, transform: Transform) -> None:
        normalize_in_graph(model, dataclasses.replace(transform, mean=(0.4, 0.4, 0.4)))

    monkeypatch.setattr("export.precision.normalize_in_graph", wrong)
    assert export(["model", "--recipe", LITE0.name, "--normalize-in-graph", "--output", str(tmp_path)]) == EXIT_FAILED
    message = capsys.readouterr().err
    assert message.startswith("model.onnx: expected outputs within 0.0001 of those of what it was made from")
    assert message.endswith(": leave --normalize-in-graph away\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_manifest_has_the_difference_of_the_file_that_is_written(
    precision: str, small: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--precision", precision, "--normalize-in-graph"]
    options += ["--calibration", str(photos), "--min-agreement", "0"] if precision == "int8" else []
    assert export_small(small, tmp_path, *options) == 0
    images = np.random.default_rng(7).integers(0, 256, (24, 3, 32, 32), np.uint8)
    given, written = logits_of(small, normalized(images, SMALL)), logits_of(tmp_path / "out" / "model.onnx", images)
    found = np.abs(written - given).max() / np.abs(given).max()
    difference = json.loads((tmp_path / "out" / "manifest.json").read_text())["largest_relative_difference"]
    assert difference == float(f"{difference:.1e}")
    assert found / 10 < difference < found * 10  # other pixels than the export's
    name = "difference" if precision == "fp32" else f"difference in {precision}"
    assert f"; largest {name} from the graph as it came at batches 1, 2 and 7: {difference:.1e} of " in (
        capsys.readouterr().out
    )


def test_int8_has_no_variants_for_tensorrt_and_loses_those_of_fp32(small: Path, photos: Path, tmp_path: Path) -> None:
    configs = tmp_path / "repository" / "small" / "configs"
    options = ["--name", "small", "--repository", str(tmp_path / "repository")]
    assert export_small(small, tmp_path, *options) == 0
    assert {path.name for path in configs.iterdir()} == {f"{CUDA}.pbtxt", *OF_TENSORRT}
    int8 = ["--precision", "int8", "--calibration", str(photos), "--min-agreement", "0"]
    assert export_small(small, tmp_path, *options, *int8) == 0
    assert [path.name for path in configs.iterdir()] == [f"{CUDA}.pbtxt"]


def with_shared_bias(model: onnx.ModelProto) -> None:
    """One bias for two layers and one that is computed: both are in the log of ONNX Runtime's quantization."""
    first, second, third = [node for node in model.graph.node if node.op_type == "Conv"]
    second.input[2] = first.input[2]
    negative = onnx.helper.make_node("Neg", [third.input[2]], ["computed"])
    third.input[2] = "computed"
    model.graph.node.insert(0, negative)


def test_a_shared_or_computed_bias_is_not_logged(
    small: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = onnx.load(small)
    with_shared_bias(model)
    tidied(model)
    quantized = tidied(quantize(model, smooth_images(8)))
    onnx.checker.check_model(quantized)
    assert caplog.records == []
    assert capfd.readouterr().err == ""
    expected, actual = (logits_of(graph, smooth_images(8)) for graph in (model, quantized))
    assert np.abs(actual - expected).max() <= 0.1 * np.abs(expected).max()


def test_by_sigmoid_the_classes_above_one_half_are_compared() -> None:
    logits = np.array([[3, 1, -1], [-2, -1, -3]], np.float32)
    np.testing.assert_array_equal(decisions(logits, "sigmoid"), [[True, True, False], [False, False, False]])
    np.testing.assert_array_equal(decisions(logits, "softmax"), [[0], [1]])


def test_where_int8_is_slower_it_says_so_and_names_what_was_compared(
    small: Path,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("export.comparison.interleaved_seconds", lambda sessions, batches: [1.0, 2.0])
    options = ["--precision", "int8", "--calibration", str(photos), "--min-agreement", "0", "--activation", "sigmoid"]
    assert export_small(small, tmp_path, *options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("int8 against fp32: the same classes above 0.5 on ")
    assert lines[2] == "warning: int8 is not faster than fp32 on this machine: take fp32, or a CPU with VNNI"


def test_the_manifest_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    threads, manifests = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert export(["model", "--recipe", LITE0.name, "--output", str(tmp_path)]) == 0
            assert torch.get_num_threads() == count
            manifests.append((tmp_path / "manifest.json").read_bytes())
    finally:
        torch.set_num_threads(threads)
    assert manifests[0] == manifests[1]


def test_what_overflows_in_fp16_is_refused(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(small)
    weights = next(each for each in model.graph.initializer if each.name == "first.weight")
    weights.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights) * np.float32(1e7), weights.name))
    onnx.save(model, tmp_path / "large.onnx")
    assert export_small(tmp_path / "large.onnx", tmp_path, "--precision", "fp16") == EXIT_FAILED
    message = capsys.readouterr().err
    assert message.startswith("model.onnx: expected outputs within 0.02 of those of what it was made from")
    assert message.endswith(": its values do not fit fp16; take fp32 or int8\n")


# Graphs as others write them

CONVERSIONS = {
    "fp32_pixels": ["--normalize-in-graph"],
    "fp16_pixels": ["--precision", "fp16", "--normalize-in-graph"],
    "int8": ["--precision", "int8", "--min-agreement", "0"],
    "int8_pixels": ["--precision", "int8", "--min-agreement", "0", "--normalize-in-graph"],
}


def with_taken_names(model: onnx.ModelProto) -> None:
    """The names that the normalization in the graph would take first."""
    first = model.graph.node[0]
    nodes = [
        onnx.helper.make_node("Identity", ["input"], ["input_normalized_scaled"]),
        onnx.helper.make_node("Identity", ["input_normalized_scaled"], ["input_normalized"]),
    ]
    first.input[0] = "input_normalized"
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])


def with_constants_as_inputs(model: onnx.ModelProto) -> None:
    model.ir_version = 3
    for constant in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(constant.name, constant.data_type, constant.dims))


def with_both_names_of_the_domain(model: onnx.ModelProto) -> None:
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx", model.opset_import[0].version))
    model.graph.node[0].domain = "ai.onnx"


@pytest.mark.parametrize("options", CONVERSIONS.values(), ids=CONVERSIONS.keys())
@pytest.mark.parametrize("change", [with_taken_names, with_constants_as_inputs, with_both_names_of_the_domain])
def test_graphs_as_others_write_them_are_converted(
    change: Callable[[onnx.ModelProto], None], options: list[str], small: Path, photos: Path, tmp_path: Path
) -> None:
    model = onnx.load(small)
    change(model)
    onnx.save(model, tmp_path / "changed.onnx")
    calibration = ["--calibration", str(photos)] if "int8" in options else []
    assert export_small(tmp_path / "changed.onnx", tmp_path, *options, *calibration) == 0
    written = onnx.load(tmp_path / "out" / "model.onnx")
    assert [value.name for value in written.graph.input] == ["input"]
    assert [entry.domain for entry in written.opset_import].count("") == 1


def test_a_graph_in_8_bits_is_not_quantized_again(
    small: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(quantize(onnx.load(small), smooth_images(8)), tmp_path / "int8.onnx")
    options = ["--precision", "int8", "--calibration", str(photos)]
    assert export_small(tmp_path / "int8.onnx", tmp_path, *options) == EXIT_FAILED
    assert capsys.readouterr().err == (
        "--precision int8: expected a float graph, got one that is quantized already (DequantizeLinear, "
        "QuantizeLinear): leave --precision away, or give the graph from before its quantization\n"
    )


def test_an_old_opset_is_refused_with_the_way_out(small: Path) -> None:
    model = onnx.load(small)
    model.opset_import[0].version = 12
    with pytest.raises(ExportError, match=r"opset 13 or newer, got opset 12: export it with opset 17 \(torch: opset_"):
        quantize(model, smooth_images(1))


def test_what_the_libraries_raise_is_told_in_one_sentence(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(model: onnx.ModelProto, **options: object) -> onnx.ModelProto:
        raise ValueError("no such type\nsecond line")

    monkeypatch.setattr("export.precision.convert_float_to_float16", failing)
    assert export_small(small, tmp_path, "--precision", "fp16") == EXIT_FAILED
    assert capsys.readouterr().err == (
        "model.onnx: expected a graph that can be converted (--precision fp16), got ValueError: no such type: "
        "export it again with opset 17, or leave these options away\n"
    )


# fp16


def test_fp16_answers_as_fp32(server: TritonServer, files: list[bytes], lite0: Path, tmp_path: Path) -> None:
    repository = export_repository(tmp_path, "--recipe", LITE0.name, "--precision", "fp16")
    sizes = [(each / LITE0.name / "1" / "model.onnx").stat().st_size for each in (lite0, repository)]
    assert sizes[1] < 0.55 * sizes[0]
    with started(repository) as fp16:
        expected, actual = (model_input_and_logits(each, files, "normalized")[1] for each in (server, fp16))
    # 11 significant bits, some hundred layers
    assert np.abs(actual - expected).max() <= 0.01 * np.abs(expected).max()
    np.testing.assert_array_equal(actual.argmax(axis=1), expected.argmax(axis=1))


# int8


def test_int8_normalizing_in_the_graph_answers_as_fp32(
    server: TritonServer, int8_server: TritonServer, files: list[bytes]
) -> None:
    expected, actual = (ask(each, "grpc", files) for each in (server, int8_server))
    clear = expected["score"][:, 0] - expected["score"][:, 1] > 0.2  # a cat may be of two kinds
    assert clear.any()
    np.testing.assert_array_equal(actual["class_id"][clear, 0], expected["class_id"][clear, 0])
    np.testing.assert_allclose(actual["score"][:, 0], expected["score"][:, 0], atol=0.2)


def test_int8_that_disagrees_is_refused_and_not_written(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def backwards(model: onnx.ModelProto, images: object) -> onnx.ModelProto:
        """The last class first."""
        result = onnx.ModelProto()
        result.CopyFrom(model)
        last = next(node for node in result.graph.node if "logits" in node.output)
        last.output[:] = ["positive"]
        result.graph.node.append(onnx.helper.make_node("Neg", ["positive"], ["logits"]))
        return result

    monkeypatch.setattr("export.precision.quantize", backwards)
    arguments = ["model", "--recipe", LITE0.name, "--precision", "int8", "--output", str(tmp_path)]
    assert export([*arguments, "--calibration", str(photos)]) == EXIT_FAILED
    message = capsys.readouterr().err
    assert message.startswith("--precision int8: expected fp32's top-1 on at least 95.0% of the held-out images, got ")
    assert "the same top-1 on 0 of " in message
    assert list(tmp_path.iterdir()) == []


def test_int8_needs_images(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(ExportError, match="expected a folder with at least 16 images, got 0 in 1 files"):
        read_pixels(tmp_path, LITE0.transform)


@pytest.mark.parametrize(
    ("options", "message"),
    {
        "no_images": (["--precision", "int8"], "--precision int8 needs --calibration FOLDER"),
        "images_for_fp32": (["--calibration", "."], "--calibration is for --precision int8, got --precision fp32"),
        "share_for_fp16": (
            ["--precision", "fp16", "--min-agreement", "0"],
            "--min-agreement is for --precision int8, got --precision fp16: leave it away",
        ),
        "missing": (
            ["--precision", "int8", "--calibration", "/nowhere"],
            "argument --calibration: expected a folder, got /nowhere, which is not there",
        ),
        "file": (
            ["--precision", "int8", "--calibration", __file__],
            f"argument --calibration: expected a folder, got {__file__}, which is a file",
        ),
    }.values(),
    ids=lambda value: "",
)
def test_options_of_int8_are_checked_before_anything_is_exported(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        export(["model", "--recipe", LITE0.name, "--weights", "random", "--output", str(tmp_path), *options])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with what the rounding tells apart: few inputs, groups, a residual, a Gemm."""

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1)
            self.grouped = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16)
            self.wide = torch.nn.Conv2d(16, 16, 5, padding=2)
            self.last = torch.nn.Linear(16, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x).relu()
            x = x + self.wide(self.grouped(x).relu())
            return self.last(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("small") / "model.onnx"
    write_onnx(Small().eval(), 32, path)
    return path


def smooth_images(count: int) -> npt.NDArray[np.float32]:
    """(count, 3, 32, 32) as photographs are: neighbours alike."""
    noise = np.random.default_rng(0).normal(size=(count, 3, 32, 32))
    return (noise.cumsum(axis=2).cumsum(axis=3) / 32).astype(np.float32)


def test_the_quantized_graph_is_near_and_its_output_is_float(small: Path) -> None:
    model, images = onnx.load(small), smooth_images(24)
    quantized = quantize(model, images[::2])
    expected, actual = (logits_of(graph, images[1::2]) for graph in (model, quantized))
    assert np.abs(actual - expected).max() <= 0.1 * np.abs(expected).max()  # of 256 levels, in four layers
    made_by = {name: node.op_type for node in quantized.graph.node for name in node.output}
    assert made_by["logits"] == "Gemm"
    assert {"QuantizeLinear", "DequantizeLinear"} <= set(made_by.values())


def test_the_same_images_give_the_same_bytes(small: Path) -> None:
    program = (
        "import hashlib, onnx, sys; from export.quantization import quantize; "
        "from tests.test_precision import smooth_images; "
        "model = quantize(onnx.load(sys.argv[1]), smooth_images(8)); "
        "print(hashlib.sha256(model.SerializeToString()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(small)],
            env={**os.environ, "PYTHONHASHSEED": seed},  # the order of sets
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_weights_rounded_together_keep_the_outputs_nearer() -> None:
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(8, 27)).astype(np.float32)
    inputs = generator.normal(size=(500, 1)) + 0.1 * generator.normal(size=(500, 27))  # all nearly alike
    together = round_together(weights, inputs.T @ inputs / len(inputs))
    scale = np.abs(weights).max(axis=1, keepdims=True) / 127
    one_by_one = np.round(weights / scale) * scale
    errors = [np.square(inputs @ (rounded - weights).T).mean() for rounded in (together, one_by_one)]
    assert errors[0] < 0.2 * errors[1]
    np.testing.assert_allclose(together / scale, np.round(together / scale), atol=1e-3)
    np.testing.assert_array_equal(np.abs(together).max(axis=1), np.abs(weights).max(axis=1))


def test_a_rare_outlier_does_not_take_the_levels_from_all_others() -> None:
    counts = np.zeros(BINS, np.int64)
    counts[BINS // 2 : BINS * 3 // 4] = 1000  # from 0 to 4
    counts[-1] = 1  # and one of 8
    low, high = best_range(Observed(lowest=-8, highest=8, counts=counts))
    assert 3.9 < high < 5
    assert low == -high


def test_int8_of_trained_weights_keeps_the_top_1(tmp_path: Path) -> None:
    """Calibrated on each half of 125 photographs and judged on the other. The speed is for benchmarks.precision."""
    weights, folder = need_shared(RESNET50_WEIGHTS), need_shared(SHARED / "images" / "photos")
    transform: Transform = RECIPES["resnet50"].transform
    assert export(["model", "--weights", str(weights), "--output", str(tmp_path)]) == 0
    model = onnx.load(tmp_path / "model.onnx")
    both = [normalized(half, transform) for half in halves(read_pixels(folder, transform))]
    changed = 0
    for calibration, judged in (both, both[::-1]):
        expected, actual = (logits_of(graph, judged).argmax(axis=1) for graph in (model, quantize(model, calibration)))
        changed += int((expected != actual).sum())
    print(f"of 125 photographs: another top-1 than fp32's on {changed}")
    assert changed <= 2
