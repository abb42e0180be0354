"""The pure functions of postprocess, against Python's own arithmetic and sorting."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from python_models.postprocess.config import PostprocessConfig
from python_models.postprocess.labels import load_labels
from python_models.postprocess.ranking import ACTIVATIONS, rank, sigmoid, softmax
from python_models.postprocess.request_parameters import InvalidParameterError, RequestParameters


@pytest.mark.parametrize("scale", [1, 30, 1e4])
def test_softmax_matches_the_formula(scale: float) -> None:
    logits = (np.random.default_rng(0).standard_normal((3, 17)) * scale).astype(np.float32)
    expected = []
    for row in logits.tolist():
        exponentials = [math.exp(x - max(row)) for x in row]
        expected.append([value / math.fsum(exponentials) for value in exponentials])
    actual = softmax(logits)
    assert (actual.dtype, actual.shape) == (np.dtype(np.float32), logits.shape)
    # float32 arithmetic: the difference x - max(row) is exact to 6e-8 of 1e5, exp() of what matters to 1e-6.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


def test_sigmoid_matches_the_formula() -> None:
    logits = np.array([[-1e4, -30, -2.5, -1e-3], [0, 0.7, 30, 1e4]], np.float32)
    expected = [[0.0 if x < -700 else 1 / (1 + math.exp(-x)) for x in row] for row in logits.tolist()]
    actual = sigmoid(logits)
    assert (actual.dtype, actual.shape) == (np.dtype(np.float32), logits.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=0)  # a few float32 roundings


def model_config(**parameters: str) -> str:
    return json.dumps({"parameters": {key: {"string_value": value} for key, value in parameters.items()}})


def test_activation_is_read_and_softmax_where_none_is_named() -> None:
    assert PostprocessConfig.from_model_config(model_config()).activation == "softmax"
    for activation in ACTIVATIONS:
        config = model_config(activation=f'"{activation}"', FORCE_CPU_ONLY_INPUT_TENSORS="no")
        assert PostprocessConfig.from_model_config(config).activation == activation


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"activation": '"relu"'}, "activation: expected one of softmax, sigmoid, none, got 'relu'"),
        ({"activation": "softmax"}, "activation: expected JSON such as \"softmax\", got 'softmax'"),
        ({"activations": '"none"'}, r"parameters: expected only activation, got also \['activations'\]"),
    ],
    ids=["unknown", "no JSON", "typo"],
)
def test_a_mistake_in_postprocess_parameters_is_named(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^config.pbtxt {message}$"):
        PostprocessConfig.from_model_config(model_config(**parameters))


@pytest.mark.parametrize("top_k", [1, 5, 50, 51, 99])  # by passes up to 50, then by sorting
def test_rank_matches_pythons_sort(top_k: int) -> None:
    scores = np.random.default_rng(1).random((4, 99)).astype(np.float32)
    scores[1] = np.round(scores[1], 1)  # many equal ones
    scores[2] = 0.25  # all equal: the lowest class ids come first
    class_id, score = rank(scores, top_k, threshold=0)
    assert (class_id.dtype, score.dtype) == (np.dtype(np.int32), np.dtype(np.float32))
    for row, ids, values in zip(scores.tolist(), class_id.tolist(), score.tolist(), strict=True):
        expected = sorted(range(99), key=lambda i: (-row[i], i))[:top_k]
        assert ids == expected
        assert values == [row[i] for i in expected]


def test_below_the_threshold_nothing_stands() -> None:
    class_id, score = rank(np.array([[0.1, 0.6, 0.3]], np.float32), top_k=3, threshold=0.3)
    assert class_id.tolist() == [[1, 2, -1]]  # a score equal to the threshold stands
    assert score.tolist() == [[pytest.approx(0.6), pytest.approx(0.3), 0]]


@pytest.mark.parametrize(
    ("text", "classes", "expected"),
    [
        ("", 1000, (5, 0)),
        ("{}", 1000, (5, 0)),
        ("{}", 3, (3, 0)),
        ('{"top_k": 1000, "threshold": 1}', 1000, (1000, 1)),
        ('{"threshold": 0.25, "request_from_elsewhere": "x"}', 10, (5, 0.25)),
    ],
)
def test_request_parameters(text: str, classes: int, expected: tuple[int, float]) -> None:
    parameters = RequestParameters.from_json(text, classes)
    assert (parameters.top_k, parameters.threshold) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"top_k": 0}', "invalid_parameter: top_k: expected an integer from 1 to 10, got 0"),
        ('{"top_k": 11}', "invalid_parameter: top_k: expected an integer from 1 to 10, got 11"),
        ('{"top_k": "3"}', "invalid_parameter: top_k: expected an integer from 1 to 10, got '3'"),
        ('{"top_k": true}', "invalid_parameter: top_k: expected an integer from 1 to 10, got True"),
        ('{"threshold": -0.1}', "invalid_parameter: threshold: expected a number from 0 to 1, got -0.1"),
        ('{"threshold": NaN}', "invalid_parameter: threshold: expected a number from 0 to 1, got nan"),
    ],
)
def test_request_parameters_out_of_range(text: str, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{message}$"):
        RequestParameters.from_json(text, classes=10)


def test_labels_are_bytes_and_class_minus_one_has_none(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("Kätzchen\nHund\n", "utf-8")
    labels = load_labels(path, classes=2)
    assert labels[[0, 1, -1]].tolist() == ["Kätzchen".encode(), b"Hund", b""]


def test_labels_must_be_as_many_as_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    with pytest.raises(ValueError, match="got no such file"):
        load_labels(path, classes=2)
    path.write_text("one\n")
    with pytest.raises(ValueError, match=r"expected 2 lines, as many as the logits of config\.pbtxt, got 1"):
        load_labels(path, classes=2)
