"""Servers that answer wrongly or late, which no real Triton does on demand; and both clients in one form."""

import asyncio
import contextlib
import http.server
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from client import (
    AsyncPipelineClient,
    ClassificationError,
    DeadlineError,
    ImageResult,
    PipelineClient,
    ServiceError,
)
from server.options import ServerOptions
from server.process import TritonServer

KINDS = ["blocking", "asyncio"]
PROTOCOLS = ["grpc", "http"]


@dataclass(frozen=True)
class Output:
    """A tensor of an answer, as its bytes."""

    name: str
    datatype: str
    shape: list[Any]
    data: bytes


def text(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def outputs(count: int = 1, label: bytes = b"tabby", error: bytes = b"") -> list[Output]:
    """What `pipeline` answers for `count` images."""
    return [
        Output("class_id", "INT32", [count, 1], struct.pack("<i", 281) * count),
        Output("score", "FP32", [count, 1], struct.pack("<f", 0.5) * count),
        Output("label", "BYTES", [count, 1], text(label) * count),
        Output("error", "BYTES", [count, 1], text(error) * count),
    ]


@dataclass(frozen=True)
class Reply:
    """Another answer than outputs: over gRPC a `code`, over HTTP a `status`, with `details`; or a `body` as it is."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    status: int = 200
    details: str | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def http_body(self) -> bytes:
        if self.body is not None:
            return self.body
        return b"<html>no JSON" if self.details is None else json.dumps({"error": self.details}).encode()


UNAVAILABLE = Reply(grpc.StatusCode.UNAVAILABLE, 503, "in maintenance")
FULL = Reply(grpc.StatusCode.UNAVAILABLE, 503, "Exceeds maximum queue size")
BAD_IMAGE = Reply(grpc.StatusCode.INVALID_ARGUMENT, 400, "preprocess: not_an_image: image 0: expected one, got none")
Answer = Callable[[int], "list[Output] | Reply"]


@dataclass
class Fake:
    """A server with a `pipeline`; `requests` has the headers of each inference."""

    answer: Answer  # given the number of the request, from 0
    max_bytes: int = -1  # of a message over gRPC
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)
    most_at_a_time: int = 0
    _at_a_time: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def infer(self, headers: Mapping[str, str]) -> "list[Output] | Reply":
        with self._lock:
            number = len(self.requests)
            self.requests.append({name.lower(): value for name, value in headers.items()})
            self._at_a_time += 1
            self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
        try:
            return self.answer(number)
        finally:
            with self._lock:
                self._at_a_time -= 1


@contextlib.contextmanager
def faking(protocol: str, answer: Answer, max_bytes: int = -1) -> Iterator[Fake]:
    fake = Fake(answer, max_bytes)
    with (_faking_grpc if protocol == "grpc" else _faking_http)(fake):
        yield fake


@contextlib.contextmanager
def _faking_grpc(fake: Fake) -> Iterator[None]:
    def infer(request: bytes, context: Any) -> bytes:
        answer = fake.infer(dict(context.invocation_metadata()))
        if isinstance(answer, list):
            return grpc_body(answer)
        if answer.code != grpc.StatusCode.OK:
            context.abort(answer.code, answer.details or "")
        return answer.body or b""

    def config(request: bytes, context: Any) -> bytes:
        message = service_pb2.ModelConfigResponse()
        message.config.max_batch_size = 8
        return bytes(message.SerializeToString())

    methods = {"ModelInfer": infer, "ModelConfig": config}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server = grpc.server(ThreadPoolExecutor(70), options=[("grpc.max_receive_message_length", fake.max_bytes)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    fake.url = f"grpc://127.0.0.1:{port}"
    try:
        yield
    finally:
        server.stop(0).wait(10)


def grpc_body(answer: list[Output]) -> bytes:
    message = service_pb2.ModelInferResponse(model_name="pipeline")
    for output in answer:
        message.outputs.add(name=output.name, datatype=output.datatype, shape=output.shape)
        message.raw_output_contents.append(output.data)
    return bytes(message.SerializeToString())


@contextlib.contextmanager
def _faking_http(fake: Fake) -> Iterator[None]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept
        disable_nagle_algorithm = True  # which holds a body back for 40 ms behind its headers

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = fake.infer({":path": self.path, **dict(self.headers.items())})
            if isinstance(answer, list):
                answer = Reply(body=http_body(answer)[0], headers={HEADER_LENGTH: str(http_body(answer)[1])})
            self._send(answer.status, answer.http_body, answer.headers)

        def do_GET(self) -> None:
            self._send(200, b'{"max_batch_size": 8}', {})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            with contextlib.suppress(ConnectionError):  # the client waits no longer
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, request: Any, address: Any) -> None:  # a connection that the client has closed
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


HEADER_LENGTH = "Inference-Header-Content-Length"


def http_body(answer: list[Output]) -> tuple[bytes, int]:
    """The body, and the length of the JSON in front."""
    described = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": one.shape,
            "parameters": {"binary_data_size": len(one.data)},
        }
        for one in answer
    ]
    header = json.dumps({"model_name": "pipeline", "outputs": described}).encode()
    return header + b"".join(one.data for one in answer), len(header)


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None], port: int = 0) -> Iterator[int]:
    """A TCP server that has `serve` handle each connection; yields its port."""
    connections: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=handle, args=[connection], daemon=True).start()

    def handle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            serve(connection)

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class BlockingAsync:
    """AsyncPipelineClient in the form of PipelineClient, with an event loop in a thread of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

        async def make() -> AsyncPipelineClient:  # within the loop
            return AsyncPipelineClient(*arguments, **options)

        try:
            self.client: AsyncPipelineClient = self.wait(make())
        except BaseException:
            self._stop()
            raise

    def wait(self, call: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(120)

    def classify(self, *arguments: Any, **options: Any) -> Any:
        return self.wait(self.client.classify(*arguments, **options))

    def classify_each(self, *arguments: Any, **options: Any) -> list[ImageResult]:
        async def gather() -> list[ImageResult]:
            return [result async for result in self.client.classify_each(*arguments, **options)]

        return self.wait(gather())  # type: ignore[no-any-return]

    def close(self) -> None:
        self.wait(self.client.close())

    def __enter__(self) -> "BlockingAsync":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self._stop()

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


def url_of(server: TritonServer, protocol: str) -> str:
    return url_at(server.options, protocol)


def url_at(options: ServerOptions, protocol: str) -> str:
    return options.grpc_url if protocol == "grpc" else options.http_url


def open_client(kind: str, url: str, **options: Any) -> Any:
    return (PipelineClient if kind == "blocking" else BlockingAsync)(url, **options)


def error_of(kind: str, url: str, **options: Any) -> ClassificationError:
    """What a call ends in; any foreign exception fails the test, and so does a text that does not help."""
    options = {"timeout_s": 10, "max_retries": 0, **options}
    with open_client(kind, url, **options) as client, pytest.raises(ClassificationError) as caught:
        client.classify(b"x")
    if isinstance(caught.value, ServiceError) and not isinstance(caught.value, DeadlineError):
        starts = (f"{url}: expected the answer of a Triton server that has `pipeline`, got: ", "answer: ", "reply: ")
        assert re.fullmatch(f"({'|'.join(map(re.escape, starts))}).+", str(caught.value), re.DOTALL)
    return caught.value
