"""`python -m benchmarks.comparison.load.http`: keeps HTTP requests in flight, and decodes nothing.

Each connection sends one whole request, made before, when it has the answer to the one before. It costs so little that
the server is what is measured: standard library only, no JSON, no copies.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from benchmarks.comparison.load.jobs import serve
from benchmarks.comparison.load.recorder import Duration, Recorder

ANSWER_TIMEOUT_S = 120
CONNECT_PAUSE_S = 0.002  # or one of a server's workers accepts all connections while the others sleep
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class LoadError(Exception):
    """The load cannot go on."""


def main() -> None:
    serve(lambda job: asyncio.run(load(job)))


async def load(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job: host, port, folder of `requests`, concurrency, warm_up_s, window_s. Returns a LoadResult."""
    recorder = Recorder(job["concurrency"], Duration(warm_up_s=job["warm_up_s"], window_s=job["window_s"]))
    requests = itertools.cycle(read_requests(job["requests"]))
    clients = []
    for _ in range(job["concurrency"]):
        clients.append(asyncio.create_task(one_client(job["host"], job["port"], requests, recorder)))
        await asyncio.sleep(CONNECT_PAUSE_S)
    await asyncio.gather(*clients)  # raises the first failure; the end of the event loop cancels the others
    return recorder.result.as_json()


@lru_cache
def read_requests(folder: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(folder).iterdir())]


async def one_client(host: str, port: int, requests: Iterator[bytes], recorder: Recorder) -> None:
    """One connection after another, of which there is a second only where a server closes the first."""
    loop = asyncio.get_running_loop()
    while not recorder.is_over:
        _, protocol = await loop.create_connection(lambda: Connection(requests, recorder), host, port)
        await protocol.ended


class Connection(asyncio.Protocol):
    """Sends, reads the answer, and sends the next; `ended` is done when the connection is closed."""

    def __init__(self, requests: Iterator[bytes], recorder: Recorder) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests, self._recorder = requests, recorder
        self._sent_at = 0.0
        self._received = bytearray()
        self._length: int | None = None  # of the whole answer, once its header is read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        self._received.clear()
        self._length = None
        loop = asyncio.get_running_loop()
        late = LoadError(f"expected an answer within {ANSWER_TIMEOUT_S} s, got none")
        self._deadline = loop.call_later(ANSWER_TIMEOUT_S, self._fail, late)
        self._sent_at = time.perf_counter()
        self._transport.write(next(self._requests))

    def _fail(self, error: LoadError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._length is None:
            try:
                self._length = answer_length(self._received)
            except LoadError as error:
                self._fail(error)
        if self._length is not None and len(self._received) >= self._length:
            self._deadline.cancel()
            self._recorder.answered(self._sent_at, is_right=self._received[9:12] == b"200")
            if self._recorder.is_over:
                self._transport.close()
            else:
                self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        if not self._recorder.is_over:
            self._recorder.answered(self._sent_at, is_right=False)
        if not self.ended.done():
            self.ended.set_result(None)


def answer_length(received: bytearray) -> int | None:
    """Bytes of the whole answer, header and body; None while the header is not complete.

    Raises LoadError for an answer that does not say how long it is.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    found = CONTENT_LENGTH.search(received, 0, end + 2)
    if found is None:
        raise LoadError(f"expected an answer with Content-Length, got {bytes(received[:end])!r}")
    return end + 4 + int(found[1])


if __name__ == "__main__":
    main()
