"""Clients that vanish, that are slow, that open and drop thousands of connections; bodies of many megabytes by curl."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.asking import connect_to, padded, tensor

from .fault import Fault
from .load import Answer, Outcome, judge
from .messages import HEADER_LENGTH, PATH, http_head, http_request
from .photos import coffee
from .sending import reset, send_each
from .service import Service

VANISHING, SLOW, DROPPED, QUICK_DROPPED = 200, 50, 10_000, 400
SLOW_S, QUICK_SLOW_S = 10, 3
AT_ONCE = 500
UPLOADS_MB, QUICK_UPLOADS_MB = (5, 12, 30, 60, 100), (30,)
CURL_TIMEOUT_S = 120


def bad_clients(service: Service, quick: bool) -> Iterator[Fault]:
    yield Fault(name=f"{VANISHING} clients vanish in mid-request", inject=vanish)
    yield Fault(
        name=f"{SLOW} clients send a byte at a time and read none",
        inject=partial(be_slow, QUICK_SLOW_S if quick else SLOW_S),
    )
    count = QUICK_DROPPED if quick else DROPPED
    yield Fault(name=f"{count:,} connections opened and dropped", inject=lambda service: drop(service, count))


# Vanishing


def vanish(service: Service) -> None:
    """Over HTTP in the middle of the body or before the answer; over gRPC by a cancelled call or a closed channel."""
    request = http_request(coffee().read_bytes())
    ways: list[Callable[[], None]] = [
        lambda: vanish_over_http(service, request[: len(request) // 2]),
        lambda: vanish_over_http(service, request),
        lambda: vanish_over_grpc(service, cancels=True),
        lambda: vanish_over_grpc(service, cancels=False),
    ]
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(ways[number % len(ways)]) for number in range(VANISHING)]:
            done.result()


def vanish_over_http(service: Service, data: bytes) -> None:
    connection = socket.create_connection(("127.0.0.1", service.options.http_port), timeout=10)
    connection.sendall(data)
    time.sleep(0.01)
    reset(connection)


def vanish_over_grpc(service: Service, cancels: bool) -> None:
    client = connect_to(service.options, "grpc")
    call = client.async_infer(
        "pipeline", [tensor("grpc", "raw_image", padded([coffee().read_bytes()]))], lambda result, error: None
    )
    time.sleep(0.01)
    if cancels:
        call.cancel()
    client.close()


# Slow


def be_slow(for_s: float, service: Service) -> None:
    """Half of them never finish their request, half ask for all that there is and never read it."""
    image = coffee().read_bytes()
    head = http_head(PATH, {HEADER_LENGTH: "0", "Content-Length": str(len(image))})
    address = ("127.0.0.1", service.options.http_port)
    connections = [socket.create_connection(address, timeout=10) for _ in range(SLOW)]
    for connection in connections[SLOW // 2 :]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        connection.sendall(head + image)
    ends_s, sent = time.monotonic() + for_s, 0
    while time.monotonic() < ends_s:
        for connection in connections[: SLOW // 2]:
            connection.sendall((head + image)[sent : sent + 1])
        sent += 1
        time.sleep(0.05)
    for connection in connections:
        connection.close()


# Dropped


def drop(service: Service, count: int) -> None:
    """To both ports by turns, AT_ONCE at a time: without a byte, or in the middle of a header; closed, or reset."""
    ports = (service.options.http_port, service.options.grpc_port)
    for first in range(0, count, AT_ONCE):
        connections = []
        for number in range(first, min(first + AT_ONCE, count)):
            connections.append(socket.create_connection(("127.0.0.1", ports[number % 2]), timeout=10))
            if number % 4 > 1:
                connections[-1].sendall(f"POST {PATH} HTTP/1.1\r\nContent-Le".encode())
        for number, connection in enumerate(connections):
            reset(connection) if number % 3 else connection.close()


# Uploads


def uploads(service: Service, quick: bool) -> Iterator[Fault]:
    """A photograph with zeros behind it: what counts is the length of the body, which curl sends in small pieces."""
    sizes = QUICK_UPLOADS_MB if quick else UPLOADS_MB
    yield Fault(
        name=f"curl sends {', '.join(map(str, sizes))} MB",
        inject=lambda service: send_each(sizes, lambda size: upload(service, size), threads=1),
    )


def upload(service: Service, megabytes: int) -> Answer:
    curl = shutil.which("curl")
    if curl is None:
        return Outcome.FAILED, "needs curl: apt-get install curl"
    with tempfile.NamedTemporaryFile() as file:
        file.write(coffee().read_bytes().ljust(megabytes * 10**6, b"\0"))
        file.flush()
        options = [
            "--silent",
            "--max-time",
            str(CURL_TIMEOUT_S),
            "--header",
            f"{HEADER_LENGTH}: 0",
            "--write-out",
            "%{stderr}%{http_code}",
        ]
        url = f"{service.options.http_url}{PATH}"
        outcome = subprocess.run([curl, *options, "--data-binary", f"@{file.name}", url], capture_output=True)
    status = outcome.stderr.decode()
    if status == "000":
        return Outcome.LOST, f"{megabytes} MB: curl ended with status {outcome.returncode}"
    if status != "200":
        return judge(status, outcome.stdout.decode(errors="replace")), outcome.stdout.decode(errors="replace")
    return (Outcome.ANSWERED, "") if b"espresso" in outcome.stdout else (Outcome.WRONG, f"{megabytes} MB")
