"""Resizing and normalizing, against Pillow's resize of the whole image and the formula one number at a time."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from benchmarks.reference import reference_crop, reference_pixels, resized_size
from python_models.preprocess.transforms import (
    normalization_table,
    normalize,
    resize_and_center_crop,
    rows_come_first,
    span,
)
from tests.writers import gradient

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# Bicubic's taps are up to 1.1 and partly negative: one level in the first pass can be two after the second.
MOST_LEVELS = {"bilinear": 1, "bicubic": 2}
INTERPOLATIONS = tuple(MOST_LEVELS)
LEVEL = 1 / 255 / min(STD)  # of 255, in normalized units
SIZES = [(1, 1), (17, 11), (44, 32), (224, 224), (256, 256), (257, 300), (640, 427), (427, 640), (1500, 1000)]
# Upscaled 85 times, tall enough for Pillow to resize the height first, and 28/31, whose taps repeat every 31 pixels.
SIZES += [(1000, 3), (3, 1000), (300, 3000), (1000, 2100), (231, 504)]


def noise(width: int, height: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(width + height).integers(0, 256, (height, width, 3), dtype=np.uint8)


def difference(image: npt.NDArray[np.uint8], resize_size: int, interpolation: str) -> npt.NDArray[np.int64]:
    """Levels of 255 between the service's crop and the reference's."""
    options = {"resize_size": resize_size, "crop_size": 224, "interpolation": interpolation}
    actual = resize_and_center_crop(image, **options)  # type: ignore[arg-type]
    assert (actual.dtype, actual.shape) == (np.dtype(np.uint8), (224, 224, 3))
    expected = reference_crop(Image.fromarray(image), **options)  # type: ignore[arg-type]
    levels: npt.NDArray[np.int64] = np.abs(actual.astype(np.int64) - expected)
    return levels


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("resize_size", [256, 232])  # torchvision's two; a 232nd is no number of float32
def test_crop_matches_the_whole_image_resized(size: tuple[int, int], interpolation: str, resize_size: int) -> None:
    for picture in (gradient, noise):
        levels = difference(picture(*size), resize_size, interpolation)
        # The promise is one level, and a mean of 0.0005 in normalized units. A shift of the box by its float32 rounding
        # alone changes up to 6 % of a gradient's pixels, a mean of 0.001.
        assert levels.max() <= MOST_LEVELS[interpolation]
        assert levels.mean() * LEVEL < 0.0005


def test_photographs_match_the_reference(shared_photos: list[Path]) -> None:
    """Real edges, where bicubic overshoots and is clipped: the same values but for one in a thousand."""
    differing = 0
    for path in shared_photos:
        image = np.asarray(reference_pixels(path.read_bytes()))
        for interpolation in INTERPOLATIONS:
            levels = difference(image, 256, interpolation)
            assert levels.max() <= MOST_LEVELS[interpolation], f"{path.name}, {interpolation}"
            assert levels.mean() * LEVEL < 0.0001, f"{path.name}, {interpolation}"
            differing += int((levels > 0).sum())
    assert differing < 0.001 * len(INTERPOLATIONS) * len(shared_photos) * 3 * 224 * 224  # values


@pytest.mark.parametrize("resize_size", [224, 232, 256])
def test_the_box_is_nearly_exact_for_most_sizes(resize_size: int) -> None:
    """By how far the last tap is off, in source pixels: that of the crop's own box, in float32, by 1e-5 as median."""
    errors = []
    for length in range(resize_size, 8000, 7):
        new_length = resize_size * length // 375
        if new_length < 224:
            continue
        chosen, scale = span(length, new_length, 224, 1), length / new_length
        corner = round((new_length - 224) / 2)
        assert chosen.skip + 224 <= chosen.size <= 224 + 32
        start = abs(chosen.first + chosen.start - (corner - chosen.skip) * scale)
        extent = abs(float(np.float32(chosen.end) - np.float32(chosen.start)) - chosen.size * scale)
        errors.append(start + extent)
    assert np.median(errors) < 1e-6
    assert max(errors) < 1e-4


@pytest.mark.parametrize(
    "size", [(300, 601), (300, 599), (375, 500), (1000, 2100), (270, 5000), (100, 900), (900, 100), (257, 514)], ids=str
)
def test_pillow_takes_its_passes_in_the_order_that_is_believed(size: tuple[int, int]) -> None:
    image = Image.fromarray(noise(*size))
    width, height = resized_size(size, 256)
    whole = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    rows_first = rows_come_first(size[1], size[0], height, width)
    between = (size[0], height) if rows_first else (width, size[1])
    apart = image.resize(between, Image.Resampling.BILINEAR).resize((width, height), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(
        whole, np.asarray(apart)
    )  # in the other order a third of the pixels differ by a level


def test_an_extreme_shape_costs_no_more_than_its_crop() -> None:
    """Resized as a whole it would have 3.9 gigapixels."""
    crop = resize_and_center_crop(noise(60_000, 1), resize_size=256, crop_size=224, interpolation="bilinear")
    assert crop.shape == (224, 224, 3)


@pytest.mark.parametrize("size", [(1, 1), (17, 11), (224, 224)], ids=str)  # 17 x 11 catches an H/W swap
def test_normalize_matches_the_formula(size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    actual = np.full((3, *size), np.nan, np.float32)
    normalize(image, normalization_table(MEAN, STD), actual)
    expected = [[[(int(pixel[c]) / 255 - MEAN[c]) / STD[c] for pixel in row] for row in image] for c in range(3)]
    # One rounding to float32 of numbers up to 2.7 errs by at most 1.2e-7; dividing by 256 instead of 255, by 0.017.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-7)
