"""What may be classified, how images become requests, and that each image has its own result, in order."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client import ImageError, ParameterError, PipelineClient
from client.images import MAX_LENGTH_RATIO, MAX_REQUEST_BYTES, Item, batch_data, batches, read_item
from server.process import TritonServer
from tests.fakes import KINDS, PROTOCOLS, open_client, url_of
from tests.running import started

MAGIC = {"jpeg": b"\xff\xd8\xff\xe0", "png": b"\x89PNG", "gif": b"GIF89a", "webp": b"RIFF"}
ALONE = {
    "bmp": b"BM",
    "pnm": b"P6\n",
    "tiff": b"II*\0",
    "big tiff": b"MM\0+",
    "none": b"xxxx",
    "avif": b"\0\0\0\x1cftyp",
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PROTOCOLS)
def url(request: pytest.FixtureRequest, server: TritonServer) -> str:
    return url_of(server, request.param)


def rgb(path: Path) -> np.ndarray[Any, Any]:
    return np.asarray(cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB))


# Through the real server


def test_every_form_of_one_image(kind: str, url: str, photos: Path) -> None:
    path = photos / "coffee.png"
    file, picture = path.read_bytes(), rgb(path)
    words = np.frombuffer(file + bytes(-len(file) % 4), np.uint32)
    forms = [file, bytearray(file), memoryview(file), memoryview(words), str(path), path, picture]  # type: ignore[arg-type]
    strided = np.zeros((*picture.shape[:2], 6), np.uint8)[:, :, ::2]
    strided[:] = picture
    forms += [strided, np.asfortranarray(picture), picture[:, ::-1][:, ::-1]]
    with open_client(kind, url) as client:
        results = [client.classify(one, top_k=3) for one in forms] + client.classify(forms, top_k=3)
    for result in results:
        assert [one.class_id for one in result.classes] == [one.class_id for one in results[0].classes]
        # A batch of more is another order of sums in float32.
        assert result.classes[0].score == pytest.approx(results[0].classes[0].score, abs=1e-4)
    assert results[0].classes[0].label == "espresso"


def test_few_images(kind: str, url: str, photos: Path) -> None:
    with open_client(kind, url) as client:
        assert client.classify([]) == []
        assert list(client.classify_each([])) == []
        assert list(client.classify_each(iter([]))) == []
        (only,) = client.classify([photos / "coffee.png"], top_k=1)
        assert (only.classes[0].label, only.error) == ("espresso", None)
        (bad,) = client.classify((b"no image",))
        assert (bad.classes, bad.error.code) == ([], "not_an_image")


def test_a_hundred_of_all_kinds(kind: str, url: str, photos: Path) -> None:
    """In order, each with its own answer or reason, as if it were asked alone."""
    coffee, camera, rocket = (photos / name for name in ("coffee.png", "camera.png", "rocket.jpg"))
    different: list[tuple[Any, str]] = [
        (coffee, "espresso"),
        (b"no image", "not_an_image"),
        (camera.read_bytes(), "tripod"),
        (b"", "empty"),
        (rgb(coffee), "espresso"),
        (coffee.read_bytes()[:5000], "truncated"),
        ("/no/such/file", "unreadable"),
        (np.zeros((2, 2), np.uint8), "unsupported"),
        (rocket, "missile"),
        (42, "unsupported"),
    ]
    order = np.random.default_rng(0).integers(0, len(different), 100)
    images = [different[index][0] for index in order]
    with open_client(kind, url) as client:
        for results in (client.classify(images, top_k=1), list(client.classify_each(iter(images), top_k=1))):
            answers = [one.error.code if one.error else one.classes[0].label for one in results]
            assert answers == [different[index][1] for index in order]


def test_a_batch_whose_every_image_is_bad(kind: str, url: str, photos: Path) -> None:
    """Its request is refused with the reason of the first; each image has its own nevertheless."""
    file = (photos / "coffee.png").read_bytes()
    images = [file[:-1000], b"\x89PNG" + bytes(len(file) - 1000), b"\xff\xd8" + bytes(len(file) - 900)]
    with open_client(kind, url) as client:
        alone = [client.classify([image])[0].error for image in images]
        together = [result.error for result in client.classify(images * 20)]
    assert all(type(error) is ImageError for error in together)
    assert [str(error) for error in together] == [str(error) for error in alone] * 20


def test_a_wrong_parameter_is_raised(kind: str, url: str, photos: Path) -> None:
    with open_client(kind, url) as client:
        for wrong in ({"top_k": 0}, {"top_k": 2**63}, {"top_k": 1.5}, {"threshold": 2}, {"threshold": float("nan")}):
            for images in (photos / "coffee.png", [photos / "coffee.png"] * 20):
                with pytest.raises(ParameterError):
                    client.classify(images, **wrong)
        assert client.classify(photos / "coffee.png").classes[0].label == "espresso"


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression_changes_no_result(kind: str, url: str, photos: Path, compression: Any) -> None:
    images = [photos / "coffee.png", rgb(photos / "camera.png"), b"no image"]
    with open_client(kind, url) as plain, open_client(kind, url, compression=compression) as compressing:
        expected, actual = plain.classify(images), compressing.classify(images)
    assert [one.classes for one in actual] == [one.classes for one in expected]
    assert [str(one.error) for one in actual] == [str(one.error) for one in expected]


def test_the_servers_own_largest_batch(own_repository: Path, photos: Path) -> None:
    """A larger request would be refused as a whole."""
    for config in own_repository.glob("pipeline*/config.pbtxt"):
        config.write_text(config.read_text().replace("max_batch_size: 32", "max_batch_size: 3"))
    with started(own_repository) as small:
        for kind in KINDS:
            for protocol in PROTOCOLS:
                with open_client(kind, url_of(small, protocol), max_in_flight=8) as client:
                    results = client.classify([photos / "coffee.png"] * 50, top_k=1)
                    assert [one.error or one.classes[0].label for one in results] == ["espresso"] * 50


def test_an_array_that_is_filled_anew() -> None:
    """As a camera does: what was handed over counts, not what stands there when it is sent."""
    array = np.zeros((1, 1, 3), np.uint8)

    def camera() -> Any:
        for value in range(20):
            array[:] = value
            yield array

    sent = [item.data for _, items in batches(camera(), 4) for item in items]  # type: ignore[union-attr]
    assert sent == [bytes([value] * 3) for value in range(20)]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200_000)), max_size=60))
def test_the_order_is_kept(kind: str, url: str, photos: Path, drawn: list[tuple[int, int]]) -> None:
    """Zeros behind a file change its length, by which batches are made, and not its answer."""
    labels = {"coffee.png": "espresso", "camera.png": "tripod", "rocket.jpg": "missile"}
    files = [(photos / name).read_bytes() for name in labels]
    given_images = [files[index] + bytes(zeros) for index, zeros in drawn]
    with open_client(kind, url, max_in_flight=16) as client:
        results = list(client.classify_each(given_images, top_k=1))
    assert [one.classes[0].label for one in results] == [list(labels.values())[index] for index, _ in drawn]


# As a pure function


def file(magic: bytes, length: int) -> bytes:
    return (magic + bytes(length))[: max(length, 1)]


images = st.one_of(
    st.builds(file, st.sampled_from([*MAGIC.values(), *ALONE.values()]), st.integers(0, 3000)),
    st.builds(lambda height, width: np.zeros((height, width, 3), np.uint8), st.integers(1, 3), st.integers(1, 3)),
    st.just("/no/such/file"),
    st.just(np.zeros(3)),
    st.just(b""),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(images, max_size=200), st.integers(1, 9), st.integers(1, 70))
def test_batches(given_images: list[Any], batch_size: int, window: int) -> None:
    places: list[int] = []
    for those, items in batches(iter(given_images), batch_size, window):
        places += those
        if isinstance(items, ImageError):
            assert len(those) == 1
            continue
        assert 1 <= len(items) == len(those) <= batch_size
        assert [item.data for item in items] == [read_item(given_images[place]).data for place in those]
        assert max(those) - min(those) < window
        assert len({item.model for item in items}) == 1
        lengths = [len(item.data) for item in items]
        assert len(items) == 1 or max(lengths) <= MAX_LENGTH_RATIO * min(lengths)
        if len(items) > 1 and items[0].tensor == "frame":
            assert len({item.shape for item in items}) == 1
        elif len(items) > 1:
            assert all(item.data[:4].startswith((b"\xff\xd8", b"\x89PNG", b"GIF8", b"RIFF")) for item in items)
    assert Counter(places) == Counter(range(len(given_images)))


def test_a_request_is_bounded_in_bytes() -> None:
    large = [file(MAGIC["jpeg"], 10 << 20)] * 7
    sizes = [len(items) for _, items in batches(large, 8)]  # type: ignore[arg-type]
    assert sizes == [3, 3, 1]
    assert max(sizes) * (10 << 20) <= MAX_REQUEST_BYTES
    assert [places for places, _ in batches([file(MAGIC["png"], 40 << 20)] * 2, 8)] == [[0], [1]]  # alone, not refused


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_files_are_padded_with_zeros(lengths: list[int]) -> None:
    items = [Item("pipeline", "raw_image", (length,), b"\xff" * length) for length in lengths]
    shape, data = batch_data(items)
    rows = np.frombuffer(data, np.uint8).reshape(shape)
    assert shape == [len(lengths), max(lengths)]
    for row, length in zip(rows, lengths, strict=True):
        assert row.tolist() == [255] * length + [0] * (max(lengths) - length)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda client: client.classify(iter([b"x"])),
            "images: expected one image or a list of them, got list_iterator",
        ),
        (lambda client: client.classify(None), "images: expected one image or a list of them, got NoneType"),
        (lambda client: client.classify_each("photo.jpg"), "images: expected an iterable of images, got one, str"),
    ],
    ids=["iterator", "None", "one path"],
)
def test_what_is_neither_one_image_nor_several(call: Callable[[PipelineClient], object], message: str) -> None:
    with PipelineClient("grpc://127.0.0.1:1") as client, pytest.raises(TypeError, match=message):
        call(client)
