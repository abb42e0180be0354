"""Every status, and every answer that is none of `pipeline`'s, ends in the right error of the client."""

import contextlib
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client import (
    AccessError,
    AnswerError,
    ClassificationError,
    DeadlineError,
    ImageError,
    NotServedError,
    OverloadedError,
    ServiceError,
    UnavailableError,
)
from client.protocol import outputs_of_body
from client.results import read_results
from tests.fakes import (
    BAD_IMAGE,
    FULL,
    HEADER_LENGTH,
    KINDS,
    PROTOCOLS,
    UNAVAILABLE,
    Output,
    Reply,
    error_of,
    faking,
    grpc_body,
    http_body,
    open_client,
    outputs,
    text,
)

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Statuses


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
