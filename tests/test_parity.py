"""The comparison of the service with Pillow and torch: that it agrees where it should, and sees what is wrong."""

import csv
import io
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from benchmarks.errors import BenchmarkError
from benchmarks.parity import observing
from benchmarks.parity.__main__ import compare
from benchmarks.parity.comparison import (
    FileResult,
    Reference,
    Refusal,
    ScoredClass,
    Served,
    Summary,
    Top1,
    Verdict,
    compare_top_1,
    judge,
    pixel_difference,
)
from benchmarks.parity.observing import Service, look_at_reference
from benchmarks.parity.picture import Case, amplified, caption, denormalized, draw, picture_size, worst
from benchmarks.parity.report import CSV_COLUMNS, lists, table, verdict
from benchmarks.reference import reference_crop, reference_input, reference_normalized, reference_pixels
from export.recipes import IMAGENET_MEAN, IMAGENET_STD, RECIPES
from export.weights import load_network
from server.process import TritonServer
from tests.running import started

LITE0 = RECIPES["efficientnet_lite0"]
MEAN, STD = LITE0.transform.mean, LITE0.transform.std
SCORES = np.array([0.1, 0.6, 0.3])


@dataclass(frozen=True)
class Run:
    """One run of the program."""

    status: int
    printed: str
    folder: Path  # of its images
    output: Path

    def rows(self) -> dict[str, dict[str, str]]:
        with (self.output / "parity.csv").open(newline="", encoding="utf-8") as file:
            return {row["path"]: row for row in csv.DictReader(file)}


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.parity", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


def turned(path: Path) -> bytes:
    """A photo that stands on its side in the file, with the EXIF orientation that turns it upright."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.open(path).convert("RGB").transpose(Image.Transpose.ROTATE_90).save(file, "JPEG", quality=90, exif=exif)
    return file.getvalue()


@pytest.fixture(scope="module")
def images(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it: photos, a subfolder, a file that is no image, one that is truncated."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "below").mkdir()
    shutil.copy(photos / "chelsea.png", folder)
    shutil.copy(photos / "rocket.jpg", folder / "below" / "r\u00f6cket.jpg")
    (folder / "turned.jpg").write_bytes(turned(photos / "coffee.png"))
    (folder / "notes.txt").write_text("no image\n")
    (folder / "half.jpg").write_bytes((photos / "rocket.jpg").read_bytes()[:50_000])
    return folder


@pytest.fixture(scope="module")
def finished(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    output = tmp_path_factory.mktemp("output") / "parity"
    outcome = run(str(images), "--recipe", "efficientnet_lite0", "--output", str(output))
    return Run(outcome.returncode, outcome.stdout + outcome.stderr, images, output)


# The program, through the real server


def test_the_service_agrees(finished: Run) -> None:
    assert finished.status == 0, finished.printed
    last = finished.printed.split("wrote ")[-1].splitlines()[1]
    assert last.startswith("met: 3 of 5 files compared; largest difference ")
    assert "top-1 as torch's 3 of 3 (all), besides 0 ties" in last


def test_a_row_a_file_is_written(finished: Run) -> None:
    rows = finished.rows()
    assert list(rows["chelsea.png"]) == list(CSV_COLUMNS)
    assert {path: (row["format"], row["size"], row["verdict"]) for path, row in rows.items()} == {
        "below/r\u00f6cket.jpg": ("JPEG", "640x427", "met"),
        "chelsea.png": ("PNG", "451x300", "met"),
        "half.jpg": ("JPEG", "640x427", "no image"),
        "notes.txt": ("unknown", "", "no image"),
        "turned.jpg": ("JPEG", "400x600", "met"),
    }
    assert rows["notes.txt"]["error"].startswith("not_an_image: expected a ")
    assert rows["notes.txt"]["reference_error"] == "UnidentifiedImageError: cannot identify image file"
    assert rows["half.jpg"]["error"].startswith("truncated: ")
    coffee = rows["turned.jpg"]
    assert (coffee["service_class_id"], coffee["torch_class_id"]) == ("967", "967")  # espresso
    assert float(coffee["service_score"]) == pytest.approx(float(coffee["torch_score"]), abs=0.005)
    assert float(coffee["max_level_difference"]) <= 1.001


def test_the_worst_cases_are_drawn(finished: Run) -> None:
    with Image.open(finished.output / "worst.png") as picture:
        assert picture.size == picture_size(3, 224, 224)


def test_formats_and_refusals_are_printed(finished: Run) -> None:
    lines = {line.split()[0]: line.split() for line in finished.printed.splitlines() if line.strip()}
    assert lines["JPEG"][1:3] == ["3", "2"]
    assert lines["JPEG"][-4:] == ["2/2", "0", "truncated", "1"]
    assert lines["unknown"][1:] == ["1", "0", "-", "-", "-", "0/0", "0", "not_an_image", "1"]
    assert "no image to either of them: 2\n  half.jpg: truncated: expected " in finished.printed


def test_wrong_usage_is_told(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        outcome = run(str(folder))
        assert outcome.returncode == 2
        assert f"expected a folder with image files, got {folder}" in outcome.stderr


def test_weights_that_are_missing_are_told(images: Path, tmp_path: Path) -> None:
    outcome = run(str(images), "--weights", "missing.pth", "--output", str(tmp_path))
    assert outcome.returncode == 1
    assert "got no file " in outcome.stderr
    assert "the measurement cannot go on: the export failed" in outcome.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": IMAGENET_MEAN, "std": IMAGENET_STD},
        {"interpolation": "bicubic"},
        {"resize_size": 232},
    ],
    ids=str,
)
def test_another_transform_than_the_service_has_is_seen(
    server: TritonServer, images: Path, changes: dict[str, Any]
) -> None:
    """Were the service's transform wrong, the reference would differ from it in the same way."""
    transform = replace(LITE0.transform, **changes)
    network = load_network(LITE0, "pretrained", seed=0).module
    with Service(server) as service:
        [(result, _)] = compare([images / "chelsea.png"], images, service, network, transform)
    assert result.verdict is Verdict.NOT_MET
    assert not Summary([result]).is_met


def test_another_network_than_the_service_has_is_seen(server: TritonServer, images: Path) -> None:
    class Other(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(torch.full((len(image),), 7), 1000) * 10.0

    with Service(server) as service:
        [(result, _)] = compare([images / "chelsea.png"], images, service, Other(), LITE0.transform)
    assert result.difference is not None
    assert result.difference.is_within_limits
    assert (result.top_1, result.verdict) == (Top1.DIFFERS, Verdict.NOT_MET)
    assert result.expected is not None
    assert result.expected.class_id == 7


def test_a_server_that_ended_ends_the_comparison(lite0: Path, tmp_path: Path) -> None:
    own = shutil.copytree(lite0, tmp_path / "repository")  # the other server runs on
    with started(own) as server, Service(server) as service:
        server.stop()
        with pytest.raises(BenchmarkError, match="Triton ended with status 0, its log is "):
            service.look_at(b"x")


def test_a_file_that_cannot_be_read_is_not_compared(
    server: TritonServer, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "MAX_FILE_BYTES", 100_000)
    paths = [images / "vanished.png", images / "chelsea.png", images / "notes.txt"]
    with Service(server) as service:
        results = [result for result, _ in compare(paths, images, service, torch.nn.Identity(), LITE0.transform)]
    assert [result.not_compared for result in results] == [
        "cannot be read: No such file or directory",
        f"cannot be read: expected at most 100000 bytes, got {(images / 'chelsea.png').stat().st_size}",
        "",
    ]


# Pixels


def photo_crop(photos: Path, left: int = 0) -> npt.NDArray[np.float64]:
    """A normalized crop, (3, 224, 224), shifted by `left` pixels."""
    image = reference_pixels((photos / "chelsea.png").read_bytes())
    wide = reference_crop(image, resize_size=256, crop_size=226, interpolation="bilinear")
    return reference_normalized(wide[1:225, 1 + left : 225 + left], MEAN, STD)


def judged(normalized: npt.NDArray[np.floating[Any]], reference: npt.NDArray[np.float64]) -> FileResult:
    served = Served(normalized=normalized.astype(np.float32), best=ScoredClass(1, 0.6))
    return judge("a.png", served, Reference(format="PNG", size="1x1", normalized=reference), SCORES, STD)


def test_the_same_crop_is_met(photos: Path) -> None:
    crop = photo_crop(photos)
    result = judged(crop, crop)
    assert (result.verdict, result.top_1) == (Verdict.MET, Top1.AGREES)
    assert verdict([result]).startswith("met: 1 of 1 files compared; largest difference 0.00 levels (at most 1); ")


def test_a_crop_shifted_by_a_pixel_is_not_met(photos: Path) -> None:
    result = judged(photo_crop(photos, left=1), photo_crop(photos))
    assert result.verdict is Verdict.NOT_MET
    assert verdict([result]).startswith("not met: ")
    assert "outside the limits: 1\n  a.png: largest " in lists([result])


@pytest.mark.parametrize(("levels", "met"), [(1, True), (1.1, False)])
def test_one_level_at_one_pixel_is_allowed(levels: float, met: bool) -> None:
    reference = reference_normalized(np.full((224, 224, 3), 100, np.uint8), MEAN, STD)
    served = reference.copy()
    served[1, 50, 60] += levels / 255 / STD[1]
    assert judged(served, reference).verdict is (Verdict.MET if met else Verdict.NOT_MET)


@pytest.mark.parametrize(("mean", "met"), [(0.00049, True), (0.00051, False)])
def test_a_small_difference_everywhere_is_not_allowed(mean: float, met: bool) -> None:
    reference = np.zeros((3, 5, 7))
    assert judged(reference + mean, reference).verdict is (Verdict.MET if met else Verdict.NOT_MET)


def test_pixel_difference_is_in_levels_of_each_channel() -> None:
    served, reference = np.zeros((3, 5, 7)), np.zeros((3, 5, 7))
    served[2, 4, 6] = -0.5
    difference = pixel_difference(served, reference, std=(0.1, 0.1, 0.2))
    assert difference.largest_levels == pytest.approx(0.5 * 0.2 * 255)
    assert difference.mean_normalized == pytest.approx(0.5 / (3 * 5 * 7))


def test_pixels_that_are_not_numbers_are_not_met() -> None:
    served = np.zeros((3, 5, 7))
    served[0, 0, 0] = np.nan
    assert judged(served, np.zeros((3, 5, 7))).verdict is Verdict.NOT_MET


def test_crops_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"served: expected shape \(3, 5, 7\) as the reference's, got \(3, 7, 5\)"):
        pixel_difference(np.zeros((3, 7, 5)), np.zeros((3, 5, 7)), STD)


# Classes and verdicts


@pytest.mark.parametrize(
    ("class_id", "scores", "expected"),
    [
        (1, [0.1, 0.6, 0.3], Top1.AGREES),
        (2, [0.1, 0.6, 0.3], Top1.DIFFERS),
        (1, [0.1, 0.4505, 0.4495], Top1.AGREES),
        (2, [0.1, 0.4505, 0.4495], Top1.DIFFERS),
        (1, [0.1, 0.4504, 0.4496], Top1.TIE),
        (2, [0.1, 0.4504, 0.4496], Top1.TIE),
        (0, [0.1, 0.4504, 0.4496], Top1.DIFFERS),  # none of the two that are close
        (-1, [0.1, 0.4504, 0.4496], Top1.DIFFERS),
        (3, [0.1, 0.6, 0.3], Top1.DIFFERS),
        (1, [np.nan] * 3, Top1.DIFFERS),
    ],
)
def test_top_1_is_compared_with_torchs_scores(class_id: int, scores: list[float], expected: Top1) -> None:
    assert compare_top_1(class_id, np.array(scores)) is expected


PIXELS = np.zeros((3, 5, 7))
REFUSED = Served(refusal=Refusal("preprocess", "truncated", "truncated: expected more"))


@pytest.mark.parametrize(
    ("served", "reference", "expected"),
    [
        (REFUSED, {"normalized": PIXELS}, Verdict.REFUSED),
        (REFUSED, {"error": "OSError: broken"}, Verdict.NO_IMAGE),
        (REFUSED, {"not_compared": "too large"}, Verdict.NOT_COMPARED),
        (Served(), {"not_compared": "cannot be read"}, Verdict.NOT_COMPARED),
        (
            Served(normalized=PIXELS.astype(np.float32), best=ScoredClass(1, 0.6)),
            {"error": "OSError: x"},
            Verdict.NOT_READ,
        ),
        (Served(refusal=Refusal("", "service", "no answer")), {"error": "OSError: broken"}, Verdict.FAILED),
        (
            Served(
                normalized=PIXELS.astype(np.float32), refusal=Refusal("postprocess", "not_finite", "not_finite: NaN")
            ),
            {"normalized": PIXELS},
            Verdict.FAILED,
        ),
    ],
)
def test_a_file_that_cannot_be_compared_says_why(served: Served, reference: dict[str, Any], expected: Verdict) -> None:
    scores = SCORES if "normalized" in reference else None
    result = judge("a.tif", served, Reference(format="TIFF", size="7x5", **reference), scores, STD)
    assert result.verdict is expected
    assert "  a.tif: " in lists([result])
    compared = judged(PIXELS, PIXELS)
    assert Summary([compared, result]).is_met == (expected is not Verdict.FAILED)


def test_nothing_compared_is_not_met() -> None:
    refused = judge("a.tif", REFUSED, Reference(format="TIFF", size="7x5", normalized=PIXELS), SCORES, STD)
    assert not Summary([refused]).is_met
    assert verdict([refused]) == "not met: nothing to compare in 1 files"
    assert table([refused]).splitlines()[1].split() == ["TIFF", "1", "0", "-", "-", "-", "0/0", "0", "truncated", "1"]


def test_ties_are_counted_apart() -> None:
    served = Served(normalized=PIXELS.astype(np.float32), best=ScoredClass(2, 0.45))
    reference = Reference(format="PNG", size="7x5", normalized=PIXELS)
    result = judge("a.png", served, reference, np.array([0.1, 0.4504, 0.4496]), STD)
    assert result.verdict is Verdict.TIE
    assert "top-1 as torch's 0 of 0 (all), besides 1 ties" in verdict([result])


def test_long_lists_end_in_a_count() -> None:
    reference = Reference(format="TIFF", size="7x5", normalized=PIXELS)
    results = [judge(f"{number}.tif", REFUSED, reference, SCORES, STD) for number in range(25)]
    lines = lists(results).splitlines()
    assert lines[0] == "refused by the service though Pillow reads them: 25"
    assert (len(lines), lines[-1]) == (22, "  and 5 more, in the CSV")


# The reference


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_the_reference_scales_16_bit_gray(format: str) -> None:
    gradient = np.linspace(0, 65535, 61 * 43).reshape(43, 61).astype(np.uint16)
    file = io.BytesIO()
    Image.fromarray(gradient).save(file, format)
    expected = np.repeat((gradient >> 8)[:, :, None], 3, axis=2)
    np.testing.assert_array_equal(np.asarray(reference_pixels(file.getvalue())), expected)


def png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "PNG")
    return file.getvalue()


def test_the_reference_takes_the_whole_transform() -> None:
    transform = replace(LITE0.transform, resize_size=40, crop_size=32, interpolation="bicubic")
    seen = look_at_reference(png(61, 43), transform)
    assert (seen.format, seen.size, seen.error, seen.not_compared) == ("PNG", "61x43", "", "")
    expected = reference_input(png(61, 43), mean=MEAN, std=STD, resize_size=40, crop_size=32, interpolation="bicubic")
    assert expected.shape == (3, 32, 32)
    assert seen.normalized is not None
    np.testing.assert_array_equal(seen.normalized, expected)


def test_an_image_too_long_to_resize_whole_is_not_compared() -> None:
    seen = look_at_reference(png(1, 60_000), LITE0.transform)
    assert seen.normalized is None
    assert seen.not_compared == "expected at most 100000000 pixels once resized, got 256 x 15360000"


def test_a_damaged_file_keeps_its_format() -> None:
    seen = look_at_reference(png(61, 43)[:60], LITE0.transform)
    assert (seen.format, seen.size, seen.normalized) == ("PNG", "61x43", None)
    assert seen.error


# The picture


def case(path: str, levels: int) -> Case:
    reference = np.full((32, 200, 3), 100, np.uint8)
    served = reference + np.uint8(levels)
    result = judged(reference_normalized(served, MEAN, STD), reference_normalized(reference, MEAN, STD))
    return Case(replace(result, path=path), served, reference)


def test_the_worst_come_first() -> None:
    cases = [case("a", 1), case("b", 9), case("c", 4)]
    assert [one.result.path for one in worst(cases, 2)] == ["b", "c"]


@pytest.mark.parametrize(("levels", "factor"), [(0, 100), (1, 100), (2, 100), (100, 2), (155, 1)])
def test_the_difference_is_amplified_without_clipping(levels: int, factor: int) -> None:
    one = case("a", levels)
    difference, actual = amplified(one.served, one.reference)
    assert actual == factor
    assert (difference == levels * factor).all()


def test_the_picture_shows_all_three_crops() -> None:
    picture = np.asarray(draw([case("a", 1), case("\u6587" * 40 + "\udcff.jpg", 2)]))
    assert picture.shape[1::-1] == picture_size(2, 32, 200)
    first = picture[8 + 16 + 16, [108, 316, 524]]  # the middles of the first row's crops
    assert first.tolist() == [[101] * 3, [100] * 3, [100] * 3]


def test_names_and_figures_stand_under_a_case() -> None:
    name, figures = caption(case("\u6587.jpg", 2))
    assert name == "\\u6587.jpg"
    assert figures == "largest 2.00 levels, mean 0.015625; class 1 (0.6000), torch's 1 (0.6000): not met"


def test_denormalized_is_the_crop_again() -> None:
    crop = np.random.default_rng(0).integers(0, 256, (17, 11, 3), dtype=np.uint8)
    normalized = reference_normalized(crop, MEAN, STD).astype(np.float32)
    np.testing.assert_array_equal(denormalized(normalized, MEAN, STD), crop)
