"""What `classify --canary` makes of the answers of two ensembles; through the real server: test_deploy.py."""

import argparse
from itertools import pairwise

import pytest

from client.canary import Asked, CanaryComparison, is_sampled, largest_difference
from client.command_line.canary import share
from client.errors import ImageError
from client.results import ClassScore, ImageResult


def result(**scores: float) -> ImageResult:
    """Classes c7=0.5 and so on, the highest score first."""
    return ImageResult([ClassScore(int(name[1:]), score, name) for name, score in scores.items()])


FAILED = ImageResult([], ImageError("preprocess", "not_an_image", "expected an image"))


@pytest.mark.parametrize("wanted", [0, 0.01, 0.1, 1 / 3, 0.7, 1])
def test_the_share_is_exact_and_evenly_spread(wanted: float) -> None:
    places = [place for place in range(3000) if is_sampled(place, wanted)]
    assert len(places) == round(3000 * wanted)
    gaps = {later - earlier for earlier, later in pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_answers_are_compared_by_top_1_and_by_each_class_that_both_have() -> None:
    found = CanaryComparison()
    found.add(result(c1=0.75, c2=0.25), 10, result(c1=0.5, c3=0.25), 20)
    found.add(result(c1=0.5, c2=0.375), 30, result(c2=0.5, c1=0.375), 40)
    assert (found.compared, found.same_top_1, found.largest_difference) == (2, 1, 0.25)
    assert found.as_json() == {
        "compared": 2,
        "same_top_1": 1,
        "largest_difference": 0.25,
        "pipeline": {"errors": 0, "p50_ms": 10, "p99_ms": 30},
        "canary": {"errors": 0, "p50_ms": 20, "p99_ms": 40},
    }
    assert str(found).splitlines() == [
        "pipeline_canary: 2 images compared, the same top-1 on 1 (50.0%), largest difference of a score 0.2500",
        "  pipeline  p50 10.0 ms, p99 30.0 ms, 0 errors",
        "  canary    p50 20.0 ms, p99 40.0 ms, 0 errors",
    ]


def test_an_image_that_failed_is_counted_where_it_failed_and_not_compared() -> None:
    found = CanaryComparison()
    found.add(result(c1=1.0), 10, FAILED, 20)
    found.add(FAILED, 10, FAILED, 20)
    assert (found.compared, found.pipeline.errors, found.canary.errors) == (0, 1, 2)
    assert "0 images compared, the same top-1 on 0, largest" in str(found)
    assert "  canary    p50 - ms, p99 - ms, 2 errors" in str(found)


def test_two_answers_without_a_class_agree() -> None:
    found = CanaryComparison()
    found.add(result(), 1, result(), 1)
    assert (found.same_top_1, largest_difference(result(), result(c1=1.0))) == (1, 0)


def test_percentiles_are_by_nearest_rank() -> None:
    asked = Asked(latencies_ms=[float(value) for value in range(200, 0, -1)])
    assert (asked.percentile_ms(50), asked.percentile_ms(99)) == (100, 198)


def test_a_share_is_from_0_to_1() -> None:
    assert share("0.25") == 0.25
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected a share from 0 to 1, got 1\.5"):
        share("1.5")
