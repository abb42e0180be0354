"""Whatever a server does, or whoever stands in its place: the client raises its own errors, in time, and says why."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from client import (
    AccessError,
    ClosedError,
    DeadlineError,
    UnavailableError,
)
from server.process import TritonServer
from tests.fakes import (
    HEADER_LENGTH,
    KINDS,
    PROTOCOLS,
    UNAVAILABLE,
    Output,
    error_of,
    faking,
    free_port,
    http_body,
    listening,
    open_client,
    outputs,
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


def stall(connection: socket.socket) -> None:
    """A late beginning, from which the wait for the rest must not begin anew."""
    connection.recv(1 << 16)
    time.sleep(0.9)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\nx")
    time.sleep(5)


@pytest.mark.parametrize("serve", [hang, stall, drip_head, drip_body, drip_chunk], ids=lambda serve: serve.__name__)
def test_an_answer_that_does_not_come_in_time(kind: str, serve: Callable[[socket.socket], None]) -> None:
    with listening(serve) as port:
        for protocol in PROTOCOLS if serve is hang else ["http"]:
            began = time.monotonic()
            error = error_of(kind, f"{protocol}://127.0.0.1:{port}", timeout_s=1, max_retries=5)
            assert type(error) is DeadlineError
            assert str(error) == f"{protocol}://127.0.0.1:{port}: expected an answer within 1 s, got none"
            assert 0.9 < time.monotonic() - began < 1.7  # 1 s, and the closing of the client on a busy machine


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
                server.process.wait()
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


def test_a_header_of_bytes_goes_over_grpc() -> None:
    with faking("grpc", lambda number: outputs()) as fake:
        with open_client("blocking", fake.url, headers={"X-Trace-Bin": "abc"}) as client:
            client.classify(b"x")
        value: object = fake.requests[0]["x-trace-bin"]
        assert value == b"abc"


@pytest.mark.parametrize("host", ["[::FFFF]", "[::ffff:127.0.0.1]"])
def test_every_form_of_an_ipv6_address(host: str) -> None:
    with open_client("blocking", f"grpc://{host}:1") as client:
        assert client.url == f"grpc://{host}:1"
