"""The two transports over HTTP: one that blocks, one for asyncio."""

import contextlib
import gzip
import io
import json
import socket
import weakref
import zlib
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import urllib3

from .connection import Connection
from .deadline import Deadline
from .errors import (
    AccessError,
    AnswerError,
    ClassificationError,
    NotServedError,
    OverloadedError,
    ServiceError,
    UnavailableError,
    error_from_text,
    service_error,
)
from .operations import Operation
from .protocol import HEADER_LENGTH, Request, outputs_of_body

_KINDS: dict[int, type[ServiceError]] = {
    401: AccessError,
    403: AccessError,
    404: NotServedError,
    405: NotServedError,
    429: OverloadedError,
    499: UnavailableError,  # Triton's CANCELLED
    502: UnavailableError,  # 502 to 504: what a proxy says whose server is away
    503: UnavailableError,
    504: UnavailableError,
}
READ_BYTES = 1 << 16


class HttpTransport:
    """A pool of connections to the server, for any number of threads. Its methods raise ClassificationError."""

    def __init__(self, connection: Connection, max_in_flight: int) -> None:
        self._connection = connection
        options: dict[str, Any] = {"ssl_context": connection.ssl_context()} if connection.is_secure else {}
        self._pool = urllib3.connection_from_url(connection.base_url, maxsize=max_in_flight, **options)
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._pool.ConnectionCls = _tracked(self._pool.ConnectionCls, self._open)

    def infer(self, request: Request, deadline: Deadline) -> dict[str, npt.NDArray[Any]]:
        body, headers = make_body(request, self._connection)
        return read_answer(*self._send("POST", infer_path(request), body, headers, deadline), self._connection)

    def control(self, operation: Operation, deadline: Deadline) -> Any:
        body = None if operation.body is None else json.dumps(operation.body).encode()
        headers = dict(self._connection.headers)
        return read_json(*self._send(operation.method, operation.path, body, headers, deadline), self._connection)

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], deadline: Deadline
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            response = self._pool.urlopen(
                method,
                self._connection.base_url + path,
                body,
                headers,
                retries=False,
                timeout=deadline.left_s(),
                preload_content=False,
            )
            with contextlib.closing(response):
                return response.status, response.headers, self._read(response, deadline)
        except urllib3.exceptions.ClosedPoolError as error:
            raise self._connection.closed() from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # One that is refused is a TimeoutError too, of urllib3's.
            timed_out = isinstance(error, urllib3.exceptions.TimeoutError)
            if timed_out and not isinstance(error, urllib3.exceptions.NewConnectionError):
                raise deadline.error() from error
            raise service_error(self._connection.no_answer(str(error.__cause__ or error)), UnavailableError) from error

    def _read(self, response: urllib3.BaseHTTPResponse, deadline: Deadline) -> bytes:
        """All of the body; the socket's own timeout would begin anew with every byte that drips in."""
        body = bytearray()
        while part := response.read1(READ_BYTES):
            body += part
            deadline.left_s()
        response.drain_conn()
        response.release_conn()
        return bytes(body)

    def close(self) -> None:
        """Close all connections; calls in flight end with an error."""
        self._pool.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError, AttributeError):  # it is closed
                connection.sock.shutdown(socket.SHUT_RDWR)


def _tracked(kind: Any, open_connections: "weakref.WeakSet[Any]") -> Any:
    class TrackedConnection(kind):  # type: ignore[misc]
        """The pool does not know the connections that are in use."""

        def connect(self) -> None:
            super().connect()
            open_connections.add(self)

    return TrackedConnection


class AsyncHttpTransport:
    """The same for asyncio."""

    def __init__(self, connection: Connection, max_in_flight: int) -> None:
        import aiohttp  # heavy, and for this class only

        self._connection, self._aiohttp = connection, aiohttp
        self._ssl = connection.ssl_context() or True
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=max_in_flight))

    async def infer(self, request: Request, deadline: Deadline) -> dict[str, npt.NDArray[Any]]:
        body, headers = make_body(request, self._connection)
        return read_answer(*await self._send("POST", infer_path(request), body, headers, deadline), self._connection)

    async def control(self, operation: Operation, deadline: Deadline) -> Any:
        body = None if operation.body is None else json.dumps(operation.body).encode()
        headers = dict(self._connection.headers)
        return read_json(*await self._send(operation.method, operation.path, body, headers, deadline), self._connection)

    async def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], deadline: Deadline
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._session.closed:
            raise self._connection.closed()
        try:
            async with self._session.request(
                method,
                self._connection.base_url + path,
                data=None if body is None else io.BytesIO(body),  # bytes would be warned of where they are many
                headers=headers,
                timeout=self._aiohttp.ClientTimeout(total=deadline.left_s()),
                ssl=self._ssl,
                allow_redirects=False,
            ) as response:
                return response.status, response.headers, await response.read()
        except TimeoutError as error:
            raise deadline.error() from error
        except (self._aiohttp.ClientError, OSError, ValueError) as error:
            raise service_error(self._connection.no_answer(str(error)), UnavailableError) from error

    async def close(self) -> None:
        """Close all connections; calls in flight end with an error."""
        await self._session.close()


def infer_path(request: Request) -> str:
    return f"/v2/models/{request.model}/infer"


def make_body(request: Request, connection: Connection) -> tuple[bytes, dict[str, str]]:
    """The body of an inference, compressed where that is wanted, and its headers."""
    body, header_length = request.http_body()
    headers = {**connection.headers, HEADER_LENGTH: str(header_length), "Content-Type": "application/octet-stream"}
    if connection.compression is not None:
        headers["Content-Encoding"] = connection.compression
        body = gzip.compress(body) if connection.compression == "gzip" else zlib.compress(body)
    return body, headers


def read_answer(
    status: int, headers: Mapping[str, str], body: bytes, connection: Connection
) -> dict[str, npt.NDArray[Any]]:
    """The outputs in the reply to an inference; raises what it tells of where it is none."""
    if status != 200:
        raise reply_error(status, body, connection)
    try:
        length = int(headers[HEADER_LENGTH])
    except (KeyError, ValueError) as error:
        raise AnswerError(connection.no_answer(f"a reply of {len(body)} bytes without {HEADER_LENGTH}")) from error
    return outputs_of_body(body, length)


def read_json(status: int, headers: Mapping[str, str], body: bytes, connection: Connection) -> Any:
    """The JSON in the reply to an operation, None where it is empty."""
    if status != 200:
        raise reply_error(status, body, connection)
    try:
        return json.loads(body) if body else None
    except ValueError as error:
        raise AnswerError(connection.no_answer(f"{len(body)} bytes starting {body[:8]!r}")) from error


def reply_error(status: int, body: bytes, connection: Connection) -> ClassificationError:
    """What a reply with another status than 200 tells of; a proxy's body is no JSON."""
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = None
    if text is not None and status in (400, 500):
        return error_from_text(text)
    return service_error(connection.no_answer(text or f"HTTP status {status}"), _KINDS.get(status, ServiceError))
