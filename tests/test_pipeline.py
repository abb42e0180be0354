"""The contract of `pipeline` and `pipeline_frames`, through a real Triton with trained weights."""

import concurrent.futures
from pathlib import Path

import numpy as np
import pytest
import tritonclient.utils
from PIL import Image

from benchmarks.reference import reference_input
from server.process import TritonServer
from tests.asking import ask, ask_model, connect, padded, tensor

FORMATS = "JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF or PNM"

both_protocols = pytest.mark.parametrize("protocol", ["grpc", "http"])

# What a trained efficientnet_lite0 sees; in the cats' case any of ImageNet's five.
CATS = {"tabby", "tiger cat", "Persian cat", "Siamese cat", "Egyptian cat"}
EXPECTED = [
    ("coffee.png", {"espresso"}, 0.9),
    ("camera.png", {"tripod"}, 0.9),
    ("chelsea.png", CATS, 0.3),
    ("motorcycle_left.png", {"moped"}, 0.3),
]


@both_protocols
@pytest.mark.parametrize(("photo", "labels", "least_score"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_a_photo_is_recognized(
    server: TritonServer, photos: Path, protocol: str, photo: str, labels: set[str], least_score: float
) -> None:
    file = (photos / photo).read_bytes()
    answer = ask(server, protocol, [file])
    assert answer["label"][0, 0].decode() in labels
    assert answer["score"][0, 0] > least_score
    assert answer["error"].tolist() == [[b""]]
    assert {name: (value.dtype.kind, value.shape) for name, value in answer.items()} == {
        "class_id": ("i", (1, 5)),
        "score": ("f", (1, 5)),
        "label": ("O", (1, 5)),
        "error": ("O", (1, 1)),
    }


@both_protocols
def test_a_frame_is_answered_as_its_file(server: TritonServer, photos: Path, protocol: str) -> None:
    for photo, _, _ in EXPECTED:
        path = photos / photo
        frame = np.asarray(Image.open(path).convert("RGB"))[np.newaxis]
        by_frame = ask_model(server, protocol, "pipeline_frames", "frame", frame)
        by_file = ask(server, protocol, [path.read_bytes()])
        np.testing.assert_array_equal(by_frame["class_id"], by_file["class_id"])
        np.testing.assert_array_equal(by_frame["score"], by_file["score"])  # PNG is lossless: the very same pixels


def test_both_protocols_give_the_same(server: TritonServer, photos: Path) -> None:
    file = (photos / "rocket.jpg").read_bytes()
    grpc, http = (ask(server, protocol, [file], top_k=1000) for protocol in ("grpc", "http"))
    for name in grpc:
        np.testing.assert_array_equal(grpc[name], http[name])


def test_preprocess_hands_over_what_training_saw(server: TritonServer, photos: Path) -> None:
    file = (photos / "rocket.jpg").read_bytes()
    client = connect(server, "grpc")
    answer = client.infer("preprocess", [tensor("grpc", "raw_image", padded([file]))])
    client.close()
    expected = reference_input(file, mean=[127 / 255] * 3, std=[128 / 255] * 3)
    difference = np.abs(answer.as_numpy("normalized")[0] - expected)
    # One level of 255 is 1/128 here; only the rounding of the resize may differ, at few pixels.
    assert difference.max() <= 1 / 128 + 1e-6
    assert difference.mean() < 0.0005


@both_protocols
def test_top_k_and_threshold(server: TritonServer, photos: Path, protocol: str) -> None:
    file = (photos / "chelsea.png").read_bytes()
    every = ask(server, protocol, [file], top_k=1000)
    assert every["score"].sum() == pytest.approx(1, abs=1e-5)
    assert (np.diff(every["score"][0]) <= 0).all()
    assert sorted(every["class_id"][0]) == list(range(1000))

    few = ask(server, protocol, [file], top_k=7, threshold=0.05)
    standing = every["score"][0, :7] >= 0.05
    assert 0 < standing.sum() < 7
    np.testing.assert_array_equal(few["class_id"][0], np.where(standing, every["class_id"][0, :7], -1))
    np.testing.assert_array_equal(few["score"][0], np.where(standing, every["score"][0, :7], 0))
    assert [bool(label) for label in few["label"][0]] == standing.tolist()

    assert ask(server, protocol, [file], threshold=1)["class_id"].tolist() == [[-1] * 5]


@both_protocols
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"top_k": 0}, "invalid_parameter: top_k: expected an integer from 1 to 1000, got 0"),
        ({"top_k": 1001}, "invalid_parameter: top_k: expected an integer from 1 to 1000, got 1001"),
        ({"top_k": 2.5}, "invalid_parameter: top_k: expected an integer from 1 to 1000, got 2.5"),
        ({"threshold": 1.5}, "invalid_parameter: threshold: expected a number from 0 to 1, got 1.5"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_invalid_argument(
    server: TritonServer, photos: Path, protocol: str, parameters: dict[str, float], message: str
) -> None:
    with pytest.raises(tritonclient.utils.InferenceServerException) as caught:
        ask(server, protocol, [(photos / "coffee.png").read_bytes()], **parameters)
    assert caught.value.status() == {"grpc": "StatusCode.INVALID_ARGUMENT", "http": "400"}[protocol]
    assert caught.value.message() == f"in ensemble 'pipeline', postprocess: {message}"


@both_protocols
def test_a_batch_of_files_of_many_lengths(server: TritonServer, photos: Path, protocol: str) -> None:
    files = [(photos / name).read_bytes() for name in ("rocket.jpg", "coffee.png", "camera.png", "retina.jpg")]
    batch = ask(server, protocol, files)
    for row, file in enumerate(files):
        alone = ask(server, protocol, [file])
        np.testing.assert_array_equal(batch["class_id"][row], alone["class_id"][0])
        # The network sums in another order in another batch size.
        np.testing.assert_allclose(batch["score"][row], alone["score"][0], rtol=1e-3, atol=1e-6)


@both_protocols
def test_a_bad_image_marks_only_its_own_row(server: TritonServer, photos: Path, protocol: str) -> None:
    coffee = (photos / "coffee.png").read_bytes()
    answer = ask(server, protocol, [coffee, b"no image", coffee[: len(coffee) // 2], coffee])
    errors = [error.decode() for error in answer["error"][:, 0]]
    assert [error.split(": ")[:2] for error in errors] == [
        [""],
        ["preprocess", "not_an_image"],
        ["preprocess", "truncated"],
        [""],
    ]
    assert answer["label"][[0, 3], 0].tolist() == [b"espresso", b"espresso"]
    assert answer["class_id"][1:3].tolist() == [[-1] * 5] * 2
    assert answer["score"][1:3].tolist() == [[0] * 5] * 2
    assert answer["label"][1:3].tolist() == [[b""] * 5] * 2


@both_protocols
@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            [b"no image"],
            f"not_an_image: image 0: expected a {FORMATS} file, got 8 bytes starting 6e 6f 20 69 6d 61 67 65",
        ),
        (
            [b"first", b"second one"],
            f"not_an_image: image 0: expected a {FORMATS} file, got 5 bytes starting 66 69 72 73 74",
        ),
        ([b""], "empty: image 0: expected an image file, got 0 bytes"),
    ],
    ids=["one", "two", "empty"],
)
def test_a_request_of_only_bad_images_is_invalid_argument(
    server: TritonServer, protocol: str, files: list[bytes], message: str
) -> None:
    with pytest.raises(tritonclient.utils.InferenceServerException) as caught:
        ask(server, protocol, files)
    assert caught.value.status() == {"grpc": "StatusCode.INVALID_ARGUMENT", "http": "400"}[protocol]
    assert caught.value.message() == f"in ensemble 'pipeline', preprocess: {message}"


def test_frames_without_a_pixel_are_refused(server: TritonServer) -> None:
    with pytest.raises(
        tritonclient.utils.InferenceServerException, match="preprocess: empty: image 0: expected a frame"
    ):
        ask_model(server, "grpc", "pipeline_frames", "frame", np.zeros((1, 0, 5, 3), np.uint8))


def test_bad_requests_do_not_harm_their_neighbours(server: TritonServer, photos: Path) -> None:
    coffee = (photos / "coffee.png").read_bytes()

    def outcome(index: int) -> bytes | str:
        try:
            return bytes(ask(server, "grpc", [coffee if index % 2 else b"bad" * (index + 1)])["label"][0, 0])
        except tritonclient.utils.InferenceServerException as error:
            return str(error.status())

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(outcome, range(64)))
    assert outcomes[1::2] == [b"espresso"] * 32
    assert outcomes[0::2] == ["StatusCode.INVALID_ARGUMENT"] * 32


def test_files_of_different_length_are_executed_together(server: TritonServer, photos: Path) -> None:
    """Without a ragged batch, requests of as many lengths as there are requests would be executed one by one."""
    file = (photos / "rocket.jpg").read_bytes()
    lengths = 48
    client = connect(server, "grpc")
    before = statistics(client, "preprocess")
    with concurrent.futures.ThreadPoolExecutor(lengths) as pool:
        answers = list(pool.map(lambda extra: ask(server, "grpc", [file + bytes(extra)]), range(lengths)))
    after = statistics(client, "preprocess")
    client.close()
    assert len({answer["label"][0, 0] for answer in answers}) == 1
    images, executions = after[0] - before[0], after[1] - before[1]
    assert images == lengths
    assert executions < images


def statistics(client: object, model: str) -> tuple[int, int]:
    """Images inferred and executions done so far, from Triton's own statistics."""
    (stats,) = client.get_inference_statistics(model).model_stats  # type: ignore[attr-defined]  # tritonclient has no types
    return stats.inference_count, stats.execution_count
