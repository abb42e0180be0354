"""Every valid file of the corpus: decoded as Pillow does, padded as in a batch or not, and refused where cut short."""

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.reference import reference_crop, reference_pixels
from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.errors import InvalidImageError
from python_models.preprocess.transforms import resize_and_center_crop
from tests.corpus import Recipe, Sample, recipes

LIMITS = Limits(max_image_bytes=10**9, max_image_pixels=10**9, max_image_frames=100, max_jpeg_scans=100)
# Refused: Pillow 13 takes each byte of these for a sample.
UNSUPPORTED = {
    "tiff-raw-16-strips-planar-61x43",
    "tiff-raw-16-tiles-16-planar-61x43",
    "tiff-raw-16-tiles-48-planar-61x43",
}
RECIPES = [recipe for recipe in recipes() if recipe.name not in UNSUPPORTED]
SMALL = [recipe for recipe in RECIPES if recipe.pixels <= 150_000]  # cutting large ones shows nothing more
FILM = "jpeg-film-after-it-61x43"  # what follows its end is no part of it
WHITE_SPACE = b" \t\n\r"


def decoded(file: bytes) -> npt.NDArray[np.uint8]:
    return decode(np.frombuffer(file, np.uint8), LIMITS)


def name_of(recipe: Recipe) -> str:
    return recipe.name


def cuts(sample: Sample) -> list[int]:
    """Lengths at which something is missing: more than the zeros, or in a text the white space, at the very end."""
    end = len(sample.file.removesuffix(b"ftypmp42 a film") if sample.name == FILM else sample.file)
    meaningless = b"\0" + (WHITE_SPACE if sample.name.startswith(("pnm-p1", "pnm-p2", "pnm-p3")) else b"")
    lengths = {int(end * 0.3), int(end * 0.6), int(end * 0.9), end - 1}
    return sorted(length for length in lengths if sample.file[length:end].strip(meaningless))


def is_truncated(file: bytes) -> bool:
    try:
        decoded(file)
    except InvalidImageError as error:
        return error.code == "truncated"
    return False


def is_refused_or_loses_nothing(file: bytes, whole: npt.NDArray[np.uint8]) -> bool:
    """What stands after the first picture's own data may be gone: further pages, end marks that nobody needs."""
    try:
        return np.array_equal(decoded(file), whole)
    except InvalidImageError:
        return True


@pytest.mark.parametrize("recipe", [recipe for recipe in recipes() if recipe.name in UNSUPPORTED], ids=name_of)
def test_what_pillow_reads_wrong_is_refused(recipe: Recipe) -> None:
    with pytest.raises(InvalidImageError, match=r"^unsupported: "):
        decoded(recipe.sample().file)


def test_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(RECIPES) >= 320
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_pixels_are_the_references(recipe: Recipe) -> None:
    """To the level, for lossy formats too: the libraries are pinned, and a low byte of 16 bits is dropped by both."""
    file = recipe.sample().file
    actual = decoded(file)
    assert actual.dtype == np.uint8
    np.testing.assert_array_equal(actual, np.asarray(reference_pixels(file)))


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_the_crop_is_the_references(recipe: Recipe) -> None:
    """The promise for every file: no value more than a level off, a mean under 0.0005 in normalized units."""
    sample = recipe.sample()
    image = reference_pixels(sample.file)
    expected = reference_crop(image, resize_size=256, crop_size=224, interpolation="bilinear").astype(np.int16)
    crop = resize_and_center_crop(decoded(sample.file), resize_size=256, crop_size=224, interpolation="bilinear")
    levels = np.abs(crop - expected)
    assert levels.max() <= 1
    assert levels.mean() / 255 / 0.224 < 0.0005  # of ImageNet's standard deviations the smallest


@pytest.mark.parametrize("recipe", SMALL, ids=name_of)
def test_zeros_after_the_end_change_nothing(recipe: Recipe) -> None:
    file = recipe.sample().file
    pixels = decoded(file)
    for padding in (1, 7, 5000):
        np.testing.assert_array_equal(decoded(file + bytes(padding)), pixels)


@pytest.mark.parametrize("recipe", [recipe for recipe in SMALL if not recipe.name.startswith("tiff")], ids=name_of)
def test_a_file_cut_short_is_refused(recipe: Recipe) -> None:
    sample = recipe.sample()
    for length in cuts(sample):
        assert is_truncated(sample.file[:length]), f"{length} of {len(sample.file)} bytes"


@pytest.mark.parametrize("recipe", [recipe for recipe in SMALL if recipe.name.startswith("tiff")], ids=name_of)
def test_a_tiff_file_cut_short_is_refused_or_loses_nothing(recipe: Recipe) -> None:
    """Unlike the others a TIFF file does not say where it ends."""
    sample = recipe.sample()
    whole = decoded(sample.file)
    for length in cuts(sample):
        assert is_refused_or_loses_nothing(sample.file[:length], whole), f"{length} of {len(sample.file)} bytes"


@pytest.mark.parametrize("recipe", [recipe for recipe in SMALL if not recipe.padding_hides_truncation], ids=name_of)
def test_a_file_cut_short_and_padded_is_refused_or_loses_nothing(recipe: Recipe) -> None:
    """A batch pads its shorter files: decoders take the zeros for image data and fill the picture with gray."""
    sample = recipe.sample()
    whole = decoded(sample.file)
    for length in cuts(sample):
        if len(sample.file) - length == 1 and has_neither_end_nor_checksum(sample):
            continue
        if sample.name in CUT_WHERE_ZEROS_MAY_STAND:
            continue
        padded = sample.file[:length].ljust(len(sample.file) + 1000, b"\0")
        assert is_refused_or_loses_nothing(padded, whole), f"{length} of {len(sample.file)} bytes"


# Cut by chance where zeros may as well be data: the last colours of
# a palette at the end of the file; ends of 13 and 17 bytes of tiny pictures that the decoder reads to the last.
CUT_WHERE_ZEROS_MAY_STAND = {
    "tiff-pillow-p-packbits-61x43",
    "webp-lossy-rocket-17x11",
    "webp-quality-0-61x43",
}


def has_neither_end_nor_checksum(sample: Sample) -> bool:
    """Where a zero for the very last byte cannot be told from data."""
    return sample.format == "webp" or "packbits" in sample.name
