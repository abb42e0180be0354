"""`python -m client` and PipelineClient, against the running server and against things that are no server."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from client import ImageError, ParameterError, PipelineClient, ServiceError
from client.errors import error_from_text
from client.reply import decode_reply
from server.process import TritonServer
from tests.running import grpc_url, http_url
from tests.web import serving


def classify(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "client", "classify", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(params=["grpc", "http"])
def url(request: pytest.FixtureRequest, server: TritonServer) -> str:
    return grpc_url(server) if request.param == "grpc" else http_url(server)


# The command line


def test_photos_are_shown_as_tables(url: str, photos: Path) -> None:
    coffee, camera = str(photos / "coffee.png"), str(photos / "camera.png")
    outcome = classify(coffee, camera, "--url", url, "--top-k", "2")
    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert len(lines) == 6
    assert lines[0] == coffee
    assert lines[1].split() == ["95.67%", "967", "espresso"]
    assert lines[4].split()[1:] == ["872", "tripod"]


def test_json_lines(url: str, photos: Path) -> None:
    coffee = str(photos / "coffee.png")
    outcome = classify(coffee, "--url", url, "--threshold", "0.5", "--format", "jsonl")
    assert outcome.returncode == 0
    answer = json.loads(outcome.stdout)
    assert (answer["image"], answer["error"]) == (coffee, None)
    assert [(one["class_id"], one["label"]) for one in answer["classes"]] == [(967, "espresso")]
    assert answer["classes"][0]["score"] == pytest.approx(0.9567, abs=1e-3)


def test_one_failure_is_status_1_and_the_others_are_answered(url: str, photos: Path) -> None:
    outcome = classify(str(photos / "README.txt"), "no_such_file.jpg", str(photos / "coffee.png"), "--url", url)
    assert outcome.returncode == 1
    assert "espresso" in outcome.stdout
    assert f"{photos / 'README.txt'}\n  not_an_image: expected a JPEG, PNG, " in outcome.stdout
    assert (
        "no_such_file.jpg\n  unreadable: no_such_file.jpg: expected a file that can be read, got: No " in outcome.stdout
    )
    assert "3 of 3 images, 2 failed, " in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: IMAGE"),
        (
            ["x.jpg", "--url", "localhost:8001"],
            "url: expected grpc://HOST:PORT, http://HOST:PORT, or grpcs or https, got localhost:8001",
        ),
        (["x.jpg", "--url", "grpc://localhost:port"], "expected grpc://HOST:PORT, http://HOST:PORT"),
        (["x.jpg", "--url", "http://localhost:99999"], "expected grpc://HOST:PORT, http://HOST:PORT"),
        (["x.jpg", "--top-k", "five"], "argument --top-k: invalid int value: 'five'"),
        (["x.jpg", "--timeout-s", "1e10"], "timeout_s: expected a number above 0, at most 1e+09, got 10000000000.0"),
        (["x.jpg", "--timeout-s", "-1"], "argument --timeout-s: expected a number above 0, got -1"),
    ],
    ids=str,
)
def test_wrong_usage_is_status_2(arguments: list[str], message: str) -> None:
    outcome = classify(*arguments)
    assert outcome.returncode == 2
    assert message in outcome.stderr


def test_nothing_above_the_threshold(url: str, photos: Path) -> None:
    outcome = classify(str(photos / "rocket.jpg"), "--url", url, "--threshold", "0.99")
    assert outcome.returncode == 0
    assert outcome.stdout.splitlines()[1] == "  no class reaches the threshold"


def test_the_ports_mixed_up(server: TritonServer, photos: Path) -> None:
    http_at_grpc = f"http://127.0.0.1:{server.options.grpc_port}"
    grpc_at_http = f"grpc://127.0.0.1:{server.options.http_port}"
    for url in (http_at_grpc, grpc_at_http):
        outcome = classify(str(photos / "coffee.png"), "--url", url, "--timeout-s", "5")
        assert outcome.returncode == 1
        assert f"{url}: expected the answer of a Triton server that has `pipeline`, got: " in outcome.stderr
        assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_no_server_is_status_1(photos: Path, scheme: str) -> None:
    outcome = classify(str(photos / "coffee.png"), "--url", f"{scheme}://127.0.0.1:1")
    assert outcome.returncode == 1
    assert f"{scheme}://127.0.0.1:1: " in outcome.stderr
    assert "Connection refused" in outcome.stderr
    assert "Traceback" not in outcome.stderr


# The client


def test_errors_come_as_the_clients_own(url: str, photos: Path) -> None:
    with PipelineClient(url) as client:
        with pytest.raises(ImageError) as caught:
            client.classify(b"no image")
        assert (caught.value.step, caught.value.code) == ("preprocess", "not_an_image")
        with pytest.raises(ParameterError) as refused:
            client.classify((photos / "coffee.png").read_bytes(), top_k=0)
        assert (refused.value.step, refused.value.code) == ("postprocess", "invalid_parameter")
        assert client.classify((photos / "coffee.png").read_bytes(), top_k=1).classes[0].label == "espresso"


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_never_answers(scheme: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        PipelineClient(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}", timeout_s=1) as client,
        pytest.raises(ServiceError),
    ):
        client.classify(b"x")


def test_no_proxy_is_asked_for_a_server_on_this_machine(
    server: TritonServer, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for url in (grpc_url(server), http_url(server)):
        outcome = classify(str(photos / "coffee.png"), "--url", url)
        assert outcome.returncode == 0, outcome.stderr


def test_a_number_that_no_request_can_hold(url: str, photos: Path) -> None:
    outcome = classify(str(photos / "coffee.png"), "--url", url, "--top-k", "99999999999999999999")
    assert outcome.returncode == 2
    assert "Traceback" not in outcome.stderr


def test_a_name_that_is_no_utf_8(url: str, photos: Path, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.png"
    with open(path, "wb") as file:  # noqa: PTH123  # Path takes no bytes
        file.write((photos / "coffee.png").read_bytes())
    command = [sys.executable.encode(), b"-m", b"client", b"classify", path, b"--url", url.encode()]
    outcome = subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert outcome.returncode == 0, outcome.stderr
    assert b"espresso" in outcome.stdout


def test_a_server_that_is_no_triton() -> None:
    with serving({}) as url, PipelineClient(url) as client, pytest.raises(ServiceError):
        client.classify(b"x")


# Errors and replies


@pytest.mark.parametrize(
    "text",
    [
        "preprocess: empty: image 0: expected an image file, got 0 bytes",
        "in ensemble 'pipeline', preprocess: empty: image 0: expected an image file, got 0 bytes",
    ],
)
def test_an_error_of_the_contract(text: str) -> None:
    error = error_from_text(text)
    assert isinstance(error, ImageError)
    assert (error.step, error.code, error.detail) == (
        "preprocess",
        "empty",
        "expected an image file, got 0 bytes",
    )


@pytest.mark.parametrize(
    "text", ["Stub process 'preprocess_0_0' is not healthy.", "preprocess: internal: expected no failure, got one", ""]
)
def test_any_other_error_is_the_services(text: str) -> None:
    assert isinstance(error_from_text(text), ServiceError)


HEADER = b'{"outputs": [{"name": "score", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}]}'


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"", "expected JSON, then binary, got 0 bytes"),
        (b"<html>", "expected JSON, then binary, got 6 bytes starting b'<html>'"),
        (b"[1]", "expected a JSON object with outputs, got 3 bytes"),
        (b"{}", "expected a JSON object with outputs in binary, got 2 bytes"),
        (HEADER + b"123", f"expected {len(HEADER)} bytes of JSON and 4 of outputs, got {len(HEADER) + 3} in all"),
        (
            HEADER + b"1234",
            r"expected the outputs \['class_id', 'score', 'label', 'error'\], got none of \['class_id', ",
        ),
    ],
    ids=["empty", "html", "list", "no outputs", "cut off", "another model"],
)
def test_a_reply_that_is_none(reply: bytes, message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        decode_reply(reply)
