"""Requests that are wrong in every way that somebody thought of: each must be refused, and nobody else notice."""

import gzip
import json
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from tritonclient.grpc.service_pb2 import ModelInferRequest

from .fault import Fault
from .load import Answer, Outcome, Tally, judge
from .messages import HEADER_LENGTH, PATH, http_head
from .sending import send_each, send_raw
from .service import Service

IMAGE = b"sixteen bytes..."
RPC = "/inference.GRPCInferenceService/ModelInfer"
RPC_TIMEOUT_S = 10
SHOWN_BYTES = 300
REFUSALS = (Outcome.REJECTED, Outcome.FAILED, Outcome.REFUSED)  # Triton says 500 to some that are the caller's fault
DEEP = 100_000  # brackets; a parser that calls itself for each would need as many frames
MAX_BATCH = 32
HUGE: list[list[int]] = [[1, 2**62], [2**32, 2**32], [2**63 - 1, 2]]
SHAPES: list[list[int]] = [[], [1], [1, 15], [1, 17], [1, -1], [-1, 16], [-2, -8], [0, 16], *HUGE]


def bad_requests(service: Service, quick: bool) -> Iterator[Fault]:
    over_http = [*http_requests()]
    yield Fault(
        name=f"{len(over_http)} malformed HTTP requests",
        inject=lambda service: send_each(over_http, lambda data: ask_http(service, data, is_whole=True)),
        own=REFUSALS,
    )
    broken_off = [*http_broken_off()]
    yield Fault(
        name=f"{len(broken_off)} HTTP requests broken off",
        inject=lambda service: send_each(broken_off, lambda data: ask_http(service, data, is_whole=False)),
        own=REFUSALS,
    )
    over_grpc = [*grpc_messages()]
    yield Fault(
        name=f"{len(over_grpc)} malformed gRPC requests",
        inject=lambda service: send_grpc(service.options.grpc_port, over_grpc),
        own=REFUSALS,
    )
    yield Fault(name="HTTP, TLS and noise to the gRPC port", inject=lambda service: babble(service.options.grpc_port))


# HTTP


def http_requests() -> Iterator[bytes]:
    """Whole requests, each with one thing wrong."""
    for shape in SHAPES:
        yield described(shape=shape)
    for dtype in ("FP32", "BYTES", "INT64", "", "uint8", 5, None):
        yield described(datatype=dtype)
    for name in ("image", "", 5, None):
        yield described(name=name)
    for size in (0, 15, 17, -1, 2**31, 2**63, "16", None):
        yield described(parameters={"binary_data_size": size})
    yield described(parameters={"shared_memory_region": "nobody's", "shared_memory_byte_size": 16})
    yield described(parameters={}, data=[300, -1, 1.5, "x"] * 4)
    yield described(shape=[MAX_BATCH + 1, 16], parameters={"binary_data_size": 16 * (MAX_BATCH + 1)})
    bodies: list[Any] = [
        {},
        {"inputs": []},
        {"inputs": 5},
        {"inputs": [tensor(), tensor()]},
        {"inputs": [{}]},
        [],
        5,
        None,
    ]
    for body in [*bodies, {"inputs": [tensor(), tensor()]}]:
        yield message(json.dumps(body).encode())
    for text in (b"", b"{", b"\xff\xfe", b"{}" * 9, b"[" * DEEP, b'{"inputs":' * DEEP, b'{"a":1e999999}'):
        yield message(text)
    for length in ("-1", "5", "100000", "2147483648", "99999999999999999999", "x", ""):
        yield message(json.dumps({"inputs": [tensor()]}).encode(), length=length)
    yield message(json.dumps({"inputs": [tensor()], "outputs": [{"name": "nothing"}]}).encode())
    yield message(b"not compressed", extra={"Content-Encoding": "gzip"})
    yield message(gzip.compress(b"cut short")[:-4], extra={"Content-Encoding": "deflate"})
    yield message(b"{}", path="/v2/models/nobody/infer")
    yield message(b"{}", path="/v2/models/pipeline/versions/99/infer")
    yield message(b"{}", path="/v2/models/pipeline/versions/-1/infer")
    yield message(b"{}", path=f"/v2/models/{'x' * 5000}/infer")
    yield message(b"{}", path="/v2/models/../../etc/passwd")
    yield message(b"{}", extra={"X-Long": "x" * 1_000_000})


def http_broken_off() -> Iterator[bytes]:
    """What is no request at all, or no whole one, and the client goes."""
    yield b"GET / HTTP/9.9\r\n\r\n"
    yield b"\r\n\r\n\r\n"
    yield b"\0" * 1000
    yield b"POST " + PATH.encode() + b"\r\n\r\n"
    yield http_head(PATH, {"Content-Length": "-1"})
    yield http_head(PATH, {"Content-Length": "x"})
    yield http_head(PATH, {})
    yield http_head(PATH, {"Transfer-Encoding": "chunked"}) + b"zz\r\n"
    yield http_head(PATH, {"Transfer-Encoding": "chunked"}) + b"-5\r\nabc\r\n0\r\n\r\n"
    for length in ("100", str(2**31), str(2**63 - 1), str(2**64)):
        yield http_head(PATH, {HEADER_LENGTH: "0", "Content-Length": length}) + IMAGE


def tensor(**wrong: Any) -> dict[str, Any]:
    size = {"binary_data_size": len(IMAGE)}
    return {"name": "raw_image", "shape": [1, len(IMAGE)], "datatype": "UINT8", "parameters": size, **wrong}


def described(**wrong: Any) -> bytes:
    return message(json.dumps({"inputs": [tensor(**wrong)]}).encode())


def message(header: bytes, length: str | None = None, path: str = PATH, extra: dict[str, str] | None = None) -> bytes:
    """A JSON header with IMAGE behind it."""
    lengths = {HEADER_LENGTH: str(len(header)) if length is None else length}
    lengths["Content-Length"] = str(len(header) + len(IMAGE))
    return http_head(path, {**lengths, **(extra or {})}) + header + IMAGE


def ask_http(service: Service, data: bytes, is_whole: bool) -> Answer:
    outcome, text = send_raw(service.options.http_port, data, is_whole)
    return outcome, f"{data[:SHOWN_BYTES]!r}: {text}"


# gRPC


def grpc_messages() -> Iterator[bytes]:
    for shape in SHAPES:
        yield infer_request(shape=shape)
    for dtype in ("FP32", "BYTES", "INT64", "", "uint8"):
        yield infer_request(datatype=dtype)
    wrongs: list[dict[str, Any]] = [
        {"name": "image"},
        {"model": "nobody"},
        {"model": ""},
        {"version": "99"},
        {"name": ""},
    ]
    for wrong in wrongs:
        yield infer_request(**wrong)
    for contents in ([], [b""], [IMAGE, IMAGE], [IMAGE[1:]], [IMAGE + b"x"]):
        yield infer_request(contents=contents)
    yield infer_request(shape=[MAX_BATCH + 1, 16], contents=[IMAGE * (MAX_BATCH + 1)])
    yield infer_request(inputs=0)
    yield infer_request(inputs=2, contents=[IMAGE, IMAGE])
    yield infer_request()[:-8]  # cut short
    yield b""
    yield b"\xff" * 1000
    yield b"\x0a\xff\xff\xff\xff\x07" + b"x" * 100  # a name of 2 GB, of which 100 bytes come


def infer_request(
    *,
    model: str = "pipeline",
    version: str = "",
    name: str = "raw_image",
    datatype: str = "UINT8",
    shape: Sequence[int] = (1, len(IMAGE)),
    contents: Sequence[bytes] = (IMAGE,),
    inputs: int = 1,
) -> bytes:
    request = ModelInferRequest(model_name=model, model_version=version)
    for _ in range(inputs):
        request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.extend(contents)
    return bytes(request.SerializeToString())


def send_grpc(port: int, messages: Sequence[bytes]) -> Tally:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        rpc = channel.unary_unary(RPC)
        return send_each(messages, lambda data: ask_grpc(rpc, data))


def ask_grpc(rpc: Callable[..., bytes], data: bytes) -> Answer:
    try:
        rpc(data, timeout=RPC_TIMEOUT_S)
    except grpc.RpcError as error:
        text = f"{data[:SHOWN_BYTES]!r}: {error.code()}: {error.details()}"
        if error.code() == grpc.StatusCode.INTERNAL and "parse" in (error.details() or "").lower():
            return Outcome.REJECTED, text  # gRPC's own word for bytes that are no message
        return judge(str(error.code()), error.details() or ""), text
    return Outcome.ANSWERED, f"{data[:SHOWN_BYTES]!r}"


def babble(port: int) -> None:
    """What does not speak HTTP/2, and what does and then says nonsense."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    frame = struct.pack(">I", 0xFFFFFF)[1:] + b"\x00" * 6
    for data in (b"GET / HTTP/1.1\r\n\r\n", hello, bytes(1000), preface, preface + frame, preface + b"\xff" * 5000):
        with socket.create_connection(("127.0.0.1", port), timeout=RPC_TIMEOUT_S) as connection:
            connection.sendall(data)
