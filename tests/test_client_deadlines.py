"""Time and order of calls: deadlines and cancellation, retries and their delays, and how many are in flight."""

import asyncio
import contextlib
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from client import (
    AsyncPipelineClient,
    DeadlineError,
    ImageError,
    ImageResult,
    OverloadedError,
    ServiceError,
    UnavailableError,
)
from client.connection import KEEPALIVE_TIME_MS
from client.deadline import FIRST_DELAY_S, LONGEST_DELAY_S, Deadline, Retries
from client.images import WINDOW
from client.operations import STATISTICS
from server.installation import find_installation
from server.process import TritonServer
from tests.fakes import (
    FULL,
    KINDS,
    PROTOCOLS,
    UNAVAILABLE,
    BlockingAsync,
    Output,
    Reply,
    faking,
    open_client,
    outputs,
)
from tests.running import grpc_url, started


def retries(max_retries: int | None, timeout_s: float = 1e9) -> Retries:
    return Retries(max_retries, Deadline(timeout_s, "grpc://x"))


# Retries, without any network


def test_delays_are_drawn_below_a_bound_that_doubles() -> None:
    delays = [[one.delay_s(UnavailableError("x")) for _ in range(7)] for one in (retries(None) for _ in range(4000))]
    for tried, column in enumerate(zip(*delays, strict=True)):
        longest = min(FIRST_DELAY_S * 2**tried, LONGEST_DELAY_S)
        assert 0 <= min(column) < max(column) <= longest
        # Uniform: the mean of 4000 is 0.5 of the longest, give or take 0.0046, and so is 0.29 its deviation.
        assert statistics.mean(column) == pytest.approx(longest / 2, rel=0.05)
        assert statistics.stdev(column) == pytest.approx(longest / 12**0.5, rel=0.05)


def test_a_long_wait_does_not_overflow() -> None:
    patient = retries(None)
    assert max(patient.delay_s(UnavailableError("x")) for _ in range(3000)) <= LONGEST_DELAY_S
    assert patient.tried == 3000


@pytest.mark.parametrize("max_retries", [0, 1, 5])
def test_retries_are_counted(max_retries: int) -> None:
    one = retries(max_retries)
    for _ in range(max_retries):
        one.delay_s(OverloadedError("x"))
    with pytest.raises(OverloadedError, match="the last"):
        one.delay_s(OverloadedError("the last"))


def test_nothing_is_tried_after_the_deadline() -> None:
    error = UnavailableError("why")
    late = retries(None, timeout_s=1e-9)
    with pytest.raises(UnavailableError, match="why"):
        late.delay_s(error)
    soon = retries(None, timeout_s=0.5)
    with contextlib.suppress(UnavailableError):
        while soon.tried < 100:
            assert soon.delay_s(error) < 0.5
    assert soon.tried < 100  # a delay of up to 2 s is once too long for the half second that is left


@pytest.mark.parametrize("kind", [one for one in [ServiceError, DeadlineError] if not one.may_be_retried])
def test_what_may_not_be_retried_is_not(kind: type[ServiceError]) -> None:
    with pytest.raises(kind):
        retries(None).delay_s(kind("x"))


# Against a server that counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
class TestCalls:
    def test_no_more_tries_than_told(self, kind: str, protocol: str) -> None:
        with faking(protocol, lambda number: UNAVAILABLE) as fake:
            with open_client(kind, fake.url, max_retries=3) as client, pytest.raises(UnavailableError):
                client.classify(b"x")
            assert len(fake.requests) == 4

    def test_no_try_after_the_deadline(self, kind: str, protocol: str) -> None:
        with faking(protocol, lambda number: FULL) as fake:
            began = time.monotonic()
            options = {"timeout_s": 1.5, "max_retries": None}
            with open_client(kind, fake.url, **options) as client, pytest.raises((OverloadedError, DeadlineError)):
                client.classify(b"x")
            assert time.monotonic() - began < 2.5
            count = len(fake.requests)
            time.sleep(2.5)  # longer than the longest delay
            assert count == len(fake.requests) >= 3

    def test_no_more_in_flight_than_told(self, kind: str, protocol: str) -> None:
        with faking(protocol, slowly(0.02)) as fake:
            with open_client(kind, fake.url, max_in_flight=7) as client, ThreadPoolExecutor(64) as threads:
                results = list(threads.map(lambda _: client.classify(b"x"), range(192)))
            assert [result.classes[0].label for result in results] == ["tabby"] * 192
            assert len(fake.requests) == 192
            assert fake.most_at_a_time == 7

    def test_failures_do_not_lose_a_place_in_flight(self, kind: str, protocol: str) -> None:
        """Of two places each failure would cost one: the twelve calls would not end."""

        def answer(number: int) -> list[Output] | Reply:
            if number % 4 == 0:
                time.sleep(0.6)
            return UNAVAILABLE if number % 2 else outputs()

        def ask(number: int) -> str:
            try:
                return str(client.classify(b"x").classes[0].label)
            except (UnavailableError, DeadlineError) as error:
                return error.code

        with faking(protocol, answer) as fake:
            options = {"max_in_flight": 2, "max_retries": 0, "timeout_s": 0.5}
            with open_client(kind, fake.url, **options) as client:
                assert {ask(number) for number in range(12)} == {"deadline", "unavailable", "tabby"}
                with ThreadPoolExecutor(2) as threads:
                    assert len(list(threads.map(ask, range(12)))) == 12

    def test_the_wait_for_a_place_counts(self, kind: str, protocol: str) -> None:
        with faking(protocol, slowly(2)) as fake:
            options = {"max_in_flight": 1, "timeout_s": 1}
            with open_client(kind, fake.url, **options) as client, ThreadPoolExecutor(5) as threads:
                began = time.monotonic()
                calls = [threads.submit(client.classify, b"x") for _ in range(5)]
                for call in calls:
                    with pytest.raises(DeadlineError):
                        call.result(10)
                assert time.monotonic() - began < 1.8

    def test_an_iterator_that_is_left_early(self, kind: str, protocol: str) -> None:
        with faking(protocol, lambda number: outputs()) as fake, open_client(kind, fake.url, max_in_flight=4) as client:
            with pytest.raises(RuntimeError, match="of the caller"):
                list(client.classify_each(broken_off()))
            assert client.classify(b"x").classes[0].label == "tabby"

    def test_results_come_though_all_that_follows_is_bad(self, kind: str, protocol: str) -> None:
        """In constant memory, and as they come: unreadable files must not pile up before the next good one."""
        asked: list[int] = []

        def missing() -> Any:
            for number in range(1000):
                asked.append(number)
                yield f"/no/such/file-{number}"

        with faking(protocol, lambda number: outputs()) as fake, open_client(kind, fake.url) as client:
            assert isinstance(first_of(client, missing()).error, ImageError)
            assert len(asked) <= WINDOW

    def test_results_behind_one_that_is_late_are_bounded(
        self, kind: str, protocol: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("client.results.MAX_WAITING", 8)
        asked: list[int] = []
        too_many = threading.Event()

        def images() -> Any:
            for number in range(1000):
                asked.append(number)
                if number == WINDOW:
                    too_many.set()
                yield b"x"

        def answer(number: int) -> list[Output]:
            if number == 0:
                too_many.wait(1)
            return outputs()

        with faking(protocol, answer) as fake, open_client(kind, fake.url, max_in_flight=16) as client:
            assert first_of(client, images()).classes[0].label == "tabby"
            assert len(asked) <= WINDOW

    def test_headers_arrive(self, kind: str, protocol: str) -> None:
        headers = {"X-Team": "vision", "X-Large": "y" * 6000, "Authorization": "Bearer abc"}
        with faking(protocol, lambda number: outputs()) as fake:
            with open_client(kind, fake.url, headers=headers) as client:
                client.classify(b"x")
            assert {name.lower(): value for name, value in headers.items()}.items() <= fake.requests[0].items()
            if protocol == "http":
                assert fake.requests[0][":path"] == "/v2/models/pipeline/infer"


def first_of(client: Any, images: Any) -> ImageResult:
    """The first result of `classify_each`, as soon as it comes."""
    if not isinstance(client, BlockingAsync):
        return next(client.classify_each(images))  # type: ignore[no-any-return]

    async def first() -> ImageResult:  # BlockingAsync's own classify_each gathers a list
        each: Any = client.client.classify_each(images)
        async with contextlib.aclosing(each):
            return await anext(each)

    return client.wait(first())  # type: ignore[no-any-return]


def slowly(seconds: float) -> Callable[[int], list[Output]]:
    def answer(number: int) -> list[Output]:
        time.sleep(seconds)
        return outputs()

    return answer


def broken_off() -> Any:
    yield from [b"x"] * 10
    raise RuntimeError("of the caller")


def test_a_base_path_is_kept() -> None:
    with faking("http", lambda number: outputs()) as fake:
        with open_client("blocking", f"{fake.url}/triton/") as client:
            client.classify(b"x")
        assert fake.requests[0][":path"] == "/triton/v2/models/pipeline/infer"


# asyncio


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cancelled_tasks_give_their_places_back(protocol: str) -> None:
    async def run(url: str) -> None:
        async with AsyncPipelineClient(url, max_in_flight=2, timeout_s=20) as client:
            for _ in range(3):
                tasks = [asyncio.create_task(client.classify(b"x")) for _ in range(6)]
                await asyncio.sleep(0.2)
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with pytest.raises(asyncio.CancelledError):
                        await task
            leave.set()
            assert (await client.classify(b"x")).classes[0].label == "tabby"

    leave = threading.Event()

    def answer(number: int) -> list[Output]:
        leave.wait(20)
        return outputs()

    with faking(protocol, answer) as fake:
        asyncio.run(run(fake.url))


# gRPC compresses in the thread that calls, which is the loop's; 16 MB take it a second.
@pytest.mark.parametrize(("protocol", "compression"), [("grpc", None), ("http", None), ("http", "gzip")])
def test_the_event_loop_is_not_kept(protocol: str, compression: Any) -> None:
    """Other tasks go on while a large image is read, compressed and sent."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()  # of the processor: on a busy machine the loop waits for others too
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - began)

    async def run(url: str) -> None:
        noise = np.random.default_rng(0).integers(0, 64, 16 << 20, np.uint8).tobytes()  # gzip takes over 0.5 s
        async with AsyncPipelineClient(url, compression=compression, timeout_s=60) as client:
            await client.classify(b"x")
            ticking = asyncio.create_task(tick())
            await client.classify(noise)
            ticking.cancel()

    with faking(protocol, lambda number: outputs()) as fake:
        asyncio.run(run(fake.url))
    print(f"{protocol}, {compression}: the loop was kept for {longest:.3f} s at most")
    assert longest < 0.25


# On the real server


def executed(server: TritonServer, model: str) -> int:
    """Images that `model` has been through, by the server's own count."""
    with open_client("blocking", grpc_url(server)) as client:
        counts = client.control(STATISTICS)["model_stats"]
    return sum(int(one["inference_count"]) for one in counts if one["name"] == model)


def test_the_server_drops_what_is_beyond_its_deadline(own_repository: Path) -> None:
    """Between the steps: Triton executes what it has queued for `preprocess`, and then nothing more."""
    config = own_repository / "preprocess" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 2", "count: 1"))  # first in, first out
    image, count = bytes(cv2.imencode(".png", np.zeros((5000, 5000, 3), np.uint8))[1]), 10  # over 0.1 s of work each

    async def run(url: str) -> None:
        async with AsyncPipelineClient(url, timeout_s=0.3, max_in_flight=count) as client:
            outcomes = await asyncio.gather(*(client.classify(image) for _ in range(count)), return_exceptions=True)
            assert sum(isinstance(one, DeadlineError) for one in outcomes) > count / 2

    with started(own_repository) as server:
        before = executed(server, "efficientnet_lite0")
        asyncio.run(run(grpc_url(server)))
        with open_client("blocking", grpc_url(server), timeout_s=100) as client:
            client.classify(image)  # behind all that is left
        done = executed(server, "efficientnet_lite0") - before - 1
        print(f"{executed(server, 'preprocess') - 1} of {count} images decoded, {done} classified")
    assert done < count / 2


def test_keepalive_is_above_the_least_that_triton_takes() -> None:
    installation = find_installation(None)
    command = [str(installation.tritonserver), "--help"]
    outcome = subprocess.run(command, env=installation.environment(), capture_output=True, text=True, timeout=30)
    found = re.search(
        r"min-recv-ping-interval-without-data <integer>.*?Default\s+is\s+(\d+)",
        outcome.stderr + outcome.stdout,
        re.DOTALL,
    )
    assert found is not None
    assert int(found[1]) < KEEPALIVE_TIME_MS
