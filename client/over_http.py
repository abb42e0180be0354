"""The two transports over HTTP: one that blocks, one for asyncio."""

import asyncio
import contextlib
import gzip
import http.client
import io
import json
import socket
import time
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
)
from .forks import renew_in_child
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


class HttpTransport:
    """A pool of connections to the server, for any number of threads. Its methods raise ClassificationError."""

    def __init__(self, connection: Connection, max_in_flight: int) -> None:
        self._connection, self._max_in_flight = connection, max_in_flight
        self._ssl = connection.ssl_context()
        self._open_pool()
        renew_in_child(self, HttpTransport._open_pool)  # two processes on one connection would mix up their answers

    def _open_pool(self) -> None:
        options: dict[str, Any] = {"ssl_context": self._ssl} if self._ssl else {}
        self._pool = urllib3.connection_from_url(self._connection.base_url, maxsize=self._max_in_flight, **options)
        self._open: set[Any] = set()
        self._pool.ConnectionCls = _tracked(self._pool.ConnectionCls, self._open)

    def infer(self, request: Request, deadline: Deadline) -> dict[str, npt.NDArray[Any]]:
        body, headers = make_body(request, self._connection, deadline.left_s())
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
                self._connection.base_path + path,
                body,
                headers,
                retries=False,
                timeout=urllib3.Timeout(total=deadline.left_s()),
                preload_content=False,
            )
            with contextlib.closing(response):
                body = response.read()
                response.release_conn()  # to the pool; closing the response would close it
                return response.status, response.headers, body
        except urllib3.exceptions.ClosedPoolError as error:
            raise self._connection.closed() from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            cause = cause_of(error)
            timed_out = isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError)
            # One that is refused is a TimeoutError too, of urllib3's.
            if timed_out and not isinstance(error, urllib3.exceptions.NewConnectionError):
                raise deadline.error() from error
            raise self._connection.failure(str(cause), UnavailableError) from error

    def close(self) -> None:
        """Close all connections; calls in flight end with an error."""
        self._pool.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError, AttributeError):  # it is closed
                connection.sock.shutdown(socket.SHUT_RDWR)


def _tracked(kind: Any, open_connections: set[Any]) -> Any:
    class TrackedConnection(kind):  # type: ignore[misc]
        """The pool does not know the connections that are in use, and its timeouts begin anew with every byte."""

        timeout: float  # seconds

        def connect(self) -> None:
            open_connections.add(self)
            started = time.monotonic()
            super().connect()
            self.timeout = max(0.001, self.timeout - (time.monotonic() - started))  # what is left for sending
            self.sock.settimeout(self.timeout)

        def close(self) -> None:
            open_connections.discard(self)
            super().close()

        def request(self, *arguments: Any, **options: Any) -> None:
            self._end = time.monotonic() + self.timeout  # the pool has set it to what is left of the call's time
            super().request(*arguments, **options)

        def response_class(self, sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
            response = http.client.HTTPResponse(sock, *arguments, **options)
            response.fp = io.BufferedReader(_UntilReader(sock, response.fp, self._end))
            return response

    return TrackedConnection


class _UntilReader(io.RawIOBase):
    """Reads from a socket until a time of time.monotonic(), however slowly the bytes drip in."""

    def __init__(self, sock: socket.socket, file: Any, end: float) -> None:
        self._sock, self._file, self._end = sock, file, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._file.raw.readinto(buffer)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._file.close()
        super().close()


class AsyncHttpTransport:
    """The same for asyncio."""

    def __init__(self, connection: Connection, max_in_flight: int) -> None:
        import aiohttp  # heavy, and for this class only

        self._connection, self._aiohttp = connection, aiohttp
        self._ssl = connection.ssl_context() or True
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=max_in_flight))

    async def infer(self, request: Request, deadline: Deadline) -> dict[str, npt.NDArray[Any]]:
        # In a thread, as compression may take long.
        body, headers = await asyncio.to_thread(make_body, request, self._connection, deadline.left_s())
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
            raise self._connection.failure(str(error), UnavailableError) from error

    async def close(self) -> None:
        """Close all connections; calls in flight end with an error."""
        await self._session.close()


def cause_of(error: Exception) -> Exception:
    """What urllib3 wraps, which says more than its wrapping."""
    return next((one for one in (error.__cause__, *error.args) if isinstance(one, Exception)), error)


def infer_path(request: Request) -> str:
    return f"/v2/models/{request.model}/infer"


def make_body(request: Request, connection: Connection, timeout_s: float) -> tuple[bytes, dict[str, str]]:
    """The body of an inference, compressed where that is wanted, and its headers."""
    body, header_length = request.http_body(timeout_s)
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
        raise connection.failure(f"a reply of {len(body)} bytes without {HEADER_LENGTH}", AnswerError) from error
    return outputs_of_body(body, length)


def read_json(status: int, headers: Mapping[str, str], body: bytes, connection: Connection) -> Any:
    """The JSON in the reply to an operation, None where it is empty."""
    if status != 200:
        raise reply_error(status, body, connection)
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError) as error:
        raise connection.failure(f"{len(body)} bytes starting {body[:8]!r}", AnswerError) from error


def reply_error(status: int, body: bytes, connection: Connection) -> ClassificationError:
    """What a reply with another status than 200 tells of; a proxy's body is no JSON."""
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = None
    if text is not None and status in (400, 500):
        return connection.error_from_text(text)
    return connection.failure(text or f"HTTP status {status}", _KINDS.get(status, ServiceError))
