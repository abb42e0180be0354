"""A fault's own requests: sent at once or one by one, and counted."""

import http.client
import socket
import struct
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .load import ANSWER_TIMEOUT_S, Answer, Outcome, Tally, judge

T = TypeVar("T")

RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: the connection is reset, not closed


def send_each(requests: Iterable[T], ask: Callable[[T], Answer], threads: int = 4) -> Tally:
    """Send each, `threads` at a time, and count what comes back."""

    def timed(request: T) -> tuple[Outcome, float, str]:
        started_s = time.monotonic()
        outcome, text = ask(request)
        return outcome, time.monotonic() - started_s, text

    result = Tally()
    with ThreadPoolExecutor(threads) as pool:
        for each in pool.map(timed, requests):
            result.add(*each)
    return result


def send_raw(port: int, data: bytes, is_whole: bool = True) -> Answer:
    """Send bytes to the HTTP port, and nothing more where they are no whole request, and judge the answer.

    A connection that Triton does not take, or ends, is a refusal.
    """
    try:
        status, body = exchange(port, data, is_whole)
    except TimeoutError:
        return Outcome.LOST, f"no answer within {ANSWER_TIMEOUT_S} s"
    except (OSError, http.client.HTTPException) as error:
        return Outcome.REFUSED, f"{type(error).__name__}: {error}"
    return (Outcome.ANSWERED, "") if status == 200 else (judge(str(status), body), body)


def exchange(port: int, data: bytes, is_whole: bool) -> tuple[int, str]:
    """HTTP status and body."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.sendall(data)
        if not is_whole:
            connection.shutdown(socket.SHUT_WR)
        reply = http.client.HTTPResponse(connection, method="POST")
        reply.begin()
        return reply.status, reply.read().decode(errors="replace")


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()
