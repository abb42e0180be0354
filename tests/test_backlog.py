"""What waits behind `preprocess` is bounded: it refuses more, at once, and takes requests again when there is room."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from client.errors import OverloadedError, error_from_text
from server.process import TritonServer
from server.watchdog.backlog import Backlog, pending

CALLERS, MOST = 60, 10
REFUSAL = b"preprocess: overloaded: expected room behind this step, got too many requests that wait there"


@pytest.fixture
def photo(photos: Path) -> bytes:
    return (photos / "coffee.png").read_bytes()


def test_under_overload_some_are_refused_and_afterwards_none(server: TritonServer, photo: bytes) -> None:
    backlog, outcomes, is_over = Backlog(server, MOST), Counter[int](), threading.Event()
    longest_refusal_s = 0.0

    def ask_again_and_again() -> None:
        nonlocal longest_refusal_s
        while not is_over.is_set():
            started = time.monotonic()
            status, reply = server.client.classify("pipeline", photo, 60)
            outcomes[status] += 1
            if status != 200:
                assert status == 503
                assert REFUSAL in reply
                longest_refusal_s = max(longest_refusal_s, time.monotonic() - started)

    with ThreadPoolExecutor(CALLERS) as threads:
        calls = [threads.submit(ask_again_and_again) for _ in range(CALLERS)]
        deadline = time.monotonic() + 30
        while not (outcomes[200] > 50 and outcomes[503] > 50) and time.monotonic() < deadline:
            backlog.look()
            time.sleep(0.1)
        is_over.set()
        for call in calls:
            call.result(60)
    assert outcomes[200] > 50
    assert outcomes[503] > 50
    backlog.look()
    assert [server.client.classify("pipeline", photo, 60)[0] for _ in range(5)] == [200] * 5
    print(f"{dict(outcomes)}, the longest refusal took {longest_refusal_s:.2f} s")


def test_the_client_takes_it_for_overload() -> None:
    for text in (REFUSAL.decode(), f"in ensemble 'pipeline', {REFUSAL.decode()}"):
        error = error_from_text(text)
        assert type(error) is OverloadedError
        assert error.may_be_retried


def test_what_waits_is_read_from_tritons_page(server: TritonServer) -> None:
    assert {model for model, _ in pending(server.client.metrics())} >= {
        "preprocess",
        "efficientnet_lite0",
        "postprocess",
    }
