"""Whatever a server does, or whoever stands in its place: the client raises its own errors, in time, and says why."""

import contextlib
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client import (
    AccessError,
    AnswerError,
    ClassificationError,
    ClosedError,
    DeadlineError,
    ImageError,
    NotServedError,
    OverloadedError,
    ServiceError,
    UnavailableError,
)
from client.protocol import outputs_of_body
from client.results import read_results
from server.process import TritonServer
from tests.fakes import (
    BAD_IMAGE,
    FULL,
    HEADER_LENGTH,
    KINDS,
    PROTOCOLS,
    UNAVAILABLE,
    Output,
    Reply,
    faking,
    free_port,
    grpc_body,
    http_body,
    listening,
    open_client,
    outputs,
    text,
    url_at,
    url_of,
)
from tests.running import pids_of, server_options, started

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def error_of(kind: str, url: str, **options: Any) -> ClassificationError:
    """What a call ends in; any foreign exception fails the test, and so does a text that does not help."""
    options = {"timeout_s": 10, "max_retries": 0, **options}
    with open_client(kind, url, **options) as client, pytest.raises(ClassificationError) as caught:
        client.classify(b"x")
    if isinstance(caught.value, ServiceError) and not isinstance(caught.value, DeadlineError):
        starts = (f"{url}: expected the answer of a Triton server that has `pipeline`, got: ", "answer: ", "reply: ")
        assert re.fullmatch(f"({'|'.join(map(re.escape, starts))}).+", str(caught.value), re.DOTALL)
    return caught.value


# Nobody there


def test_a_closed_port(kind: str, protocol: str) -> None:
    error = error_of(kind, f"{protocol}://127.0.0.1:{free_port()}")
    assert type(error) is UnavailableError
    assert "refused" in str(error) or "Connect call failed" in str(error)


def test_a_host_that_does_not_exist(kind: str, protocol: str) -> None:
    assert type(error_of(kind, f"{protocol}://no-such-host.invalid:1234")) is UnavailableError


def test_words_in_the_url_are_not_taken_for_the_reason(kind: str, protocol: str) -> None:
    assert type(error_of(kind, f"{protocol}://certificate-unknown.model.invalid:1234")) is UnavailableError


def test_a_server_that_comes_up_late(own_repository: Path, photos: Path) -> None:
    options = server_options(own_repository)

    def ask(kind: str, protocol: str) -> Any:
        with open_client(kind, url_at(options, protocol), timeout_s=60, max_retries=None) as client:
            return client.classify(photos / "coffee.png", top_k=1)

    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(ask, kind, protocol) for kind in KINDS for protocol in PROTOCOLS]
        time.sleep(2)
        with TritonServer(options):
            assert [call.result(60).classes[0].label for call in calls] == ["espresso"] * 4


# Late


def hang(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def drip_head(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Dripping: a header\r\n" * 1000:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def drip_body(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


def drip_chunk(connection: socket.socket) -> None:
    """The length of a chunk that does not end."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"0")
        time.sleep(0.05)


@pytest.mark.parametrize("serve", [hang, drip_head, drip_body, drip_chunk], ids=lambda serve: serve.__name__)
def test_an_answer_that_does_not_come_in_time(kind: str, serve: Callable[[socket.socket], None]) -> None:
    with listening(serve) as port:
        for protocol in PROTOCOLS if serve is hang else ["http"]:
            began = time.monotonic()
            error = error_of(kind, f"{protocol}://127.0.0.1:{port}", timeout_s=1, max_retries=5)
            assert type(error) is DeadlineError
            assert str(error) == f"{protocol}://127.0.0.1:{port}: expected an answer within 1 s, got none"
            assert 0.9 < time.monotonic() - began < 2  # 1 s, and the closing of the client on a busy machine


def test_a_server_that_reads_nothing(kind: str, protocol: str) -> None:
    """A request that the sockets' buffers cannot hold must not wait for ever to be sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{protocol}://127.0.0.1:{listener.getsockname()[1]}"
        with open_client(kind, url, timeout_s=1) as client, pytest.raises(DeadlineError):
            client.classify(bytes(30 << 20))


def test_a_model_that_does_not_answer_in_time(kind: str, protocol: str) -> None:
    leave = threading.Event()

    def answer(number: int) -> list[Output]:
        leave.wait(30)
        return outputs()

    with faking(protocol, answer) as fake:
        error = error_of(kind, fake.url, timeout_s=0.5, max_retries=5)
        leave.set()
        assert type(error) is DeadlineError
        assert len(fake.requests) == 1


# Broken in the middle


def reset(connection: socket.socket) -> None:
    connection.recv(100)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half(connection: socket.socket) -> None:
    body, length = http_body(outputs())
    connection.recv(1 << 16)
    head = f"HTTP/1.1 200 OK\r\n{HEADER_LENGTH}: {length}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body[: len(body) // 2])
    connection.close()


def greet(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    connection.close()


@pytest.mark.parametrize("serve", [reset, half, greet], ids=lambda serve: serve.__name__)
def test_a_connection_that_ends_in_the_middle(kind: str, protocol: str, serve: Callable[[socket.socket], None]) -> None:
    with listening(serve) as port:
        error = error_of(kind, f"{protocol}://127.0.0.1:{port}", timeout_s=3)
        assert type(error) in (UnavailableError, DeadlineError if protocol == "grpc" else UnavailableError)


def test_a_killed_server_is_told_of_or_waited_for(own_repository: Path, photos: Path) -> None:
    """Requests are in flight when it dies; those with retries are answered once it is back on the same ports."""
    options = server_options(own_repository)
    coffee = (photos / "coffee.png").read_bytes()
    is_back = threading.Event()

    def ask(kind: str, protocol: str, max_retries: int | None) -> list[Any]:
        outcomes: list[Any] = []
        with open_client(kind, url_at(options, protocol), timeout_s=60, max_retries=max_retries) as client:
            while not is_back.is_set():
                try:
                    outcomes.append(client.classify(coffee, top_k=1).classes[0].label)
                except Exception as error:
                    outcomes.append(type(error))
                    time.sleep(0.05)
            return [*outcomes, client.classify(coffee, top_k=1).classes[0].label]  # the same client finds it again

    with ThreadPoolExecutor(8) as threads:
        try:
            with TritonServer(options) as server:
                server.wait_until_ready()
                ways = [(kind, protocol) for kind in KINDS for protocol in PROTOCOLS]
                hasty = [threads.submit(ask, *way, 0) for way in ways]
                patient = [threads.submit(ask, *way, None) for way in ways]
                time.sleep(1)
                server.process.send_signal(signal.SIGKILL)
                server.wait()
            with TritonServer(options) as server:
                server.wait_until_ready()
                time.sleep(2.5)  # gRPC waits up to 2 s before it connects again
                is_back.set()
                assert [set(call.result(60)) for call in hasty] == [{"espresso", UnavailableError}] * 4
                assert [set(call.result(60)) for call in patient] == [{"espresso"}] * 4
        finally:
            is_back.set()


def test_a_dead_stub_is_passed_by(own_repository: Path, photos: Path) -> None:
    with started(own_repository) as server:
        os.kill(pids_of(server, "preprocess")[0], signal.SIGKILL)
        for kind in KINDS:
            for protocol in PROTOCOLS:
                with open_client(kind, url_of(server, protocol), timeout_s=60, max_retries=None) as client:
                    for _ in range(3):
                        assert client.classify(photos / "coffee.png", top_k=1).classes[0].label == "espresso"


# What the server answers


STATUSES: list[tuple[int, type[ServiceError]]] = [
    (302, ServiceError),
    (401, AccessError),
    (403, AccessError),
    (404, NotServedError),
    (413, ServiceError),
    (429, OverloadedError),
    (499, UnavailableError),
    (500, ServiceError),
    (502, UnavailableError),
    (503, UnavailableError),
    (504, UnavailableError),
]


@pytest.mark.parametrize(("status", "expected"), STATUSES, ids=str)
@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[1]", b'{"error": {}}', b"[" * 100_000, b"\xff\xfe"], ids=lambda body: repr(body[:9])
)
def test_a_status_of_http(kind: str, status: int, expected: type[ServiceError], body: bytes) -> None:
    with faking("http", lambda number: Reply(status=status, body=body, headers={"Location": "/elsewhere"})) as fake:
        error = error_of(kind, fake.url)
        assert type(error) is expected
        assert len(fake.requests) == 1
        if b"{" not in body:
            assert f"HTTP status {status}" in str(error)


CODES: list[tuple[grpc.StatusCode, type[ServiceError]]] = [
    (grpc.StatusCode.UNAVAILABLE, UnavailableError),
    (grpc.StatusCode.CANCELLED, UnavailableError),
    (grpc.StatusCode.UNKNOWN, UnavailableError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
    (grpc.StatusCode.UNAUTHENTICATED, AccessError),
    (grpc.StatusCode.PERMISSION_DENIED, AccessError),
    (grpc.StatusCode.NOT_FOUND, NotServedError),
    (grpc.StatusCode.UNIMPLEMENTED, NotServedError),
    (grpc.StatusCode.INTERNAL, ServiceError),
    (grpc.StatusCode.INVALID_ARGUMENT, ServiceError),
    (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineError),
    (grpc.StatusCode.ABORTED, ServiceError),
    (grpc.StatusCode.DATA_LOSS, ServiceError),
    (grpc.StatusCode.FAILED_PRECONDITION, ServiceError),
]


@pytest.mark.parametrize(("code", "expected"), CODES, ids=str)
@pytest.mark.parametrize("details", ["", "something"])
def test_a_status_of_grpc(kind: str, code: grpc.StatusCode, expected: type[ServiceError], details: str) -> None:
    with faking("grpc", lambda number: Reply(code=code, details=details)) as fake:
        assert type(error_of(kind, fake.url)) is expected
        assert len(fake.requests) == 1


def test_a_message_that_is_too_large_for_a_proxy(kind: str) -> None:
    """gRPC's status for it is that of a server that has too much to do, which would be asked again."""
    with faking("grpc", lambda number: outputs(), max_bytes=1 << 20) as fake:
        with open_client(kind, fake.url, max_retries=5) as client, pytest.raises(ServiceError) as caught:
            client.classify(bytes(2 << 20))
        assert type(caught.value) is ServiceError
        assert "message larger than max" in str(caught.value)


TEXTS: list[tuple[Reply, type[ClassificationError]]] = [
    (FULL, OverloadedError),
    (UNAVAILABLE, UnavailableError),
    (BAD_IMAGE, ImageError),
]


@pytest.mark.parametrize(("reply", "expected"), TEXTS, ids=lambda one: getattr(one, "details", None))
def test_what_may_be_tried_again_is(
    kind: str, protocol: str, reply: Reply, expected: type[ClassificationError]
) -> None:
    with faking(protocol, lambda number: reply if number < 2 else outputs()) as fake:
        if issubclass(expected, ImageError):
            error = error_of(kind, fake.url, max_retries=5)
            assert (type(error), error.code) == (ImageError, "not_an_image")
            assert len(fake.requests) == 1
        else:
            assert type(error_of(kind, fake.url, max_retries=1)) is expected
            with open_client(kind, fake.url, max_retries=1) as client:
                assert client.classify(b"x").classes[0].label == "tabby"
            assert len(fake.requests) == 3


# Nonsense


GOOD = {one.name: one for one in outputs()}


def with_output(name: str, **changes: Any) -> list[Output]:
    return [Output(**{**vars(one), **(changes if one.name == name else {})}) for one in outputs()]


NONSENSE: dict[str, list[Output]] = {
    "no outputs": [],
    "another model": [Output("logits", "FP32", [1, 2], bytes(8))],
    **{f"no {name}": [one for one in outputs() if one.name != name] for name in GOOD},
    "two rows for one image": outputs(2),
    "no rows": with_output("class_id", shape=[0, 1], data=b""),
    "one axis": with_output("score", shape=[1]),
    "too many values": with_output("score", data=bytes(8)),
    "too few bytes": with_output("class_id", data=b"123"),
    "shape too large": with_output("class_id", shape=[2**40, 2**40]),
    "another dtype": with_output("score", datatype="INT32"),
    "a dtype that none is": with_output("score", datatype="FP99"),
    "text for numbers": with_output("class_id", datatype="BYTES", data=text(b"281")),
    "text cut in its length": with_output("label", data=b"\1\0"),
    "text cut short": with_output("label", data=text(b"tabby")[:-1]),
    "text of 4 GB": with_output("label", data=b"\xff\xff\xff\xffx"),
    "label that is no UTF-8": outputs(label=b"caf\xe9"),
    "error that is no UTF-8": outputs(error=b"preprocess: corrupt: \xe9"),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE.keys())
def test_an_answer_that_is_none_of_pipelines(kind: str, protocol: str, answer: list[Output]) -> None:
    with faking(protocol, lambda number: answer) as fake:
        assert type(error_of(kind, fake.url, max_retries=5)) is AnswerError
        assert len(fake.requests) == 1  # to ask again would not help


BODY, LENGTH = http_body(outputs())
BODIES: dict[str, tuple[bytes, str | None]] = {
    "empty": (b"", "0"),
    "garbage": (bytes(range(256)), "256"),
    "html": (b"<html>It works!</html>", None),
    "no header length": (BODY, None),
    "header length that is no number": (BODY, "many"),
    "header length too small": (BODY, str(LENGTH - 1)),
    "header length too large": (BODY, str(LENGTH + 1)),
    "header length below zero": (BODY, "-1"),
    "header length beyond the end": (BODY, "999999"),
    "cut short": (BODY[:-1], str(LENGTH)),
    "too long": (BODY + b"x", str(LENGTH)),
    "deep JSON": (b"[" * 100_000, "100000"),
    "another JSON": (b'{"outputs": [1]}', "16"),
    "outputs without end": (b'{"outputs": [{"parameters": {"binary_data_size": Infinity}}]}', "61"),
    "a name that is none": (BODY.replace(b'"class_id"', b'["lass_id"]'), str(LENGTH + 1)),
    "a shape of text": (BODY.replace(b"[1, 1]", b'"1, 1"'), str(LENGTH)),
    "no shape": (BODY.replace(b"[1, 1]", b"null  "), str(LENGTH)),
}


@pytest.mark.parametrize(("body", "length"), BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_no_answer(kind: str, body: bytes, length: str | None) -> None:
    headers = {} if length is None else {HEADER_LENGTH: length}
    with faking("http", lambda number: Reply(body=body, headers=headers)) as fake:
        assert type(error_of(kind, fake.url)) is AnswerError


@pytest.mark.parametrize("body", [b"\xff" * 50, grpc_body(outputs())[:-1], b""], ids=["garbage", "cut short", "empty"])
def test_a_message_that_is_no_answer(kind: str, body: bytes) -> None:
    with faking("grpc", lambda number: Reply(body=body)) as fake:
        assert type(error_of(kind, fake.url)) is AnswerError


@settings(max_examples=2000, deadline=None)
@given(st.data())
def test_a_damaged_body_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(BODY)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ClassificationError):
        assert len(read_results(outputs_of_body(bytes(body), data.draw(st.sampled_from([LENGTH, None]))), 1)) == 1


# Permission, and the end


def test_a_restricted_protocol(own_repository: Path, photos: Path) -> None:
    arguments = ["--grpc-restricted-protocol=inference:x-key=open", "--http-restricted-api=inference:x-key=open"]
    with started(own_repository, *arguments) as server:
        for kind in KINDS:
            for protocol in PROTOCOLS:
                url = url_of(server, protocol)
                assert type(error_of(kind, url)) is AccessError
                name = "triton-grpc-protocol-x-key" if protocol == "grpc" else "x-key"
                with open_client(kind, url, headers={name: "open"}) as client:
                    assert client.classify(photos / "coffee.png", top_k=1).classes[0].label == "espresso"


@pytest.mark.parametrize("shared_memory", [False, True], ids=["sent", "shared memory"])
def test_a_closed_client(kind: str, protocol: str, shared_memory: bool) -> None:
    with faking(protocol, lambda number: outputs()) as fake:
        with open_client(kind, fake.url, shared_memory=shared_memory) as client:
            client.close()
            client.close()  # again does nothing
            for images in (b"x", [b"x"], [b"x", b"y"]):
                with pytest.raises(ClosedError, match="expected an open client"):
                    client.classify(images)
        assert fake.requests == []


@pytest.mark.parametrize("max_retries", [0, None], ids=str)
def test_closing_ends_the_calls_in_flight(kind: str, protocol: str, max_retries: int | None) -> None:
    leave = threading.Event()

    def answer(number: int) -> list[Output]:
        leave.wait(30)
        return outputs()

    errors: list[BaseException] = []

    def ask(client: Any) -> None:
        try:
            client.classify(b"x")
        except BaseException as error:
            errors.append(error)

    with faking(protocol, answer) as fake:
        options = {"timeout_s": 30, "max_in_flight": 4, "max_retries": max_retries}
        with open_client(kind, fake.url, **options) as client:
            callers = [threading.Thread(target=ask, args=[client]) for _ in range(8)]  # of which 4 wait for a slot
            for caller in callers:
                caller.start()
            while len(fake.requests) < 4:
                time.sleep(0.01)
            began = time.monotonic()
            client.close()
            for caller in callers:
                caller.join(20)
            assert time.monotonic() - began < 5
        leave.set()
        assert len(fake.requests) == 4
    assert [type(error) for error in errors] == [ClosedError] * 8


def test_closing_ends_the_wait_for_another_try(kind: str, protocol: str) -> None:
    with (
        faking(protocol, lambda number: UNAVAILABLE) as fake,
        open_client(kind, fake.url, timeout_s=60, max_retries=None) as client,
    ):
        threading.Timer(1, client.close).start()
        began = time.monotonic()
        with pytest.raises(ClosedError):
            client.classify(b"x")
        assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    "headers", [{"a b": "c"}, {"": "c"}, {"a": "b\r\nc: d"}, {"a": "ü"}, {"ä": "b"}], ids=lambda headers: str(headers)
)
def test_headers_that_cannot_be_sent(kind: str, protocol: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="headers: expected a name and a value in ASCII"):
        open_client(kind, f"{protocol}://127.0.0.1:1", headers=headers)
