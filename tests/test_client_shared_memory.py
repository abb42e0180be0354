"""Images handed over in shared memory: the same answers, and nothing left behind however a client ends."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tritonclient.grpc

from client import AsyncPipelineClient, ClosedError, DeadlineError, ImageError, ServiceError, shared_memory
from client.shared_memory import RegionPool
from server.process import TritonServer
from tests.fakes import KINDS, open_client
from tests.running import child, grpc_url, server_options

ROOT = Path(__file__).resolve().parent.parent


def in_memory(pid: int) -> list[str]:
    return [path.name for path in Path("/dev/shm").glob(f"triton-classify-{pid}-*")]


def registered(server: TritonServer, pid: int) -> list[str]:
    """The regions of a process that the server has mapped, by tritonclient."""
    client = tritonclient.grpc.InferenceServerClient(grpc_url(server).removeprefix("grpc://"))
    try:
        names = client.get_system_shared_memory_status(as_json=True).get("regions", {})
        return [name for name in names if name.startswith(f"triton-classify-{pid}-")]
    finally:
        client.close()


def pictures() -> list[np.ndarray[Any, Any]]:
    shapes = [(1, 1), (17, 11), (480, 640), (17, 11), (1080, 1920)]
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes]


@pytest.fixture
def everything(photos: Path) -> list[Any]:
    files = [photos / name for name in ("coffee.png", "rocket.jpg", "README.txt", "camera.png", "chelsea.png")]
    return [*files, *pictures(), b"", b"no image", (photos / "astronaut.png").read_bytes()]


def slow_image() -> bytes:
    """A small file that is half a second of work: 64 megapixels."""
    return bytes(cv2.imencode(".png", np.zeros((8000, 8000, 3), np.uint8))[1])


@pytest.mark.parametrize("kind", KINDS)
class TestSharedMemory:
    def test_the_results_are_the_same(self, kind: str, server: TritonServer, everything: list[Any]) -> None:
        with (
            open_client(kind, grpc_url(server)) as sending,
            open_client(kind, grpc_url(server), shared_memory=True) as sharing,
        ):
            for _ in range(3):  # the later ones in regions that are used again
                expected, actual = sending.classify(everything), sharing.classify(everything)
                assert [one.classes for one in actual] == [one.classes for one in expected]
                assert any(one.classes for one in actual)
                assert [str(one.error) for one in actual] == [str(one.error) for one in expected]
                assert registered(server, os.getpid())
        assert in_memory(os.getpid()) == registered(server, os.getpid()) == []

    def test_nothing_is_left_after_an_exception(self, kind: str, server: TritonServer) -> None:
        with open_client(kind, grpc_url(server), shared_memory=True) as client:
            for _ in range(3):
                with pytest.raises(ImageError):
                    client.classify(b"no image")
            assert len(registered(server, os.getpid())) == 1  # used again
        assert in_memory(os.getpid()) == registered(server, os.getpid()) == []

    def test_a_restart_of_the_server_is_healed(self, kind: str, own_repository: Path, photos: Path) -> None:
        """Every region of the client is lost, one without a retry."""
        options = server_options(own_repository)
        url = f"grpc://127.0.0.1:{options.grpc_port}"
        with open_client(kind, url, shared_memory=True, max_retries=0, timeout_s=60) as client:
            with TritonServer(options) as server:
                server.wait_until_ready()
                assert all(not one.error for one in client.classify(pictures() * 8))
                before = registered(server, os.getpid())
                assert len(before) > 1
            with TritonServer(options) as server:
                server.wait_until_ready()
                time.sleep(2.5)  # gRPC waits up to 2 s before it connects again
                for _ in range(2):
                    results = client.classify(pictures() * 8)
                    assert [one.error for one in results] == [None] * len(results)
                assert set(registered(server, os.getpid())) & set(before)
                client.close()
                assert in_memory(os.getpid()) == registered(server, os.getpid()) == []

    def test_a_call_that_timed_out_does_no_harm(self, kind: str, server: TritonServer, photos: Path) -> None:
        """The server may still read the region when the client closes; it must not be taken from under it."""
        picture = slow_image()
        options = {"shared_memory": True, "timeout_s": 0.2, "max_in_flight": 6}
        with open_client(kind, grpc_url(server), **options) as client, ThreadPoolExecutor(6) as threads:
            calls = [threads.submit(client.classify, picture) for _ in range(6)]
            assert {type(call.exception(30)) for call in calls} == {DeadlineError}
        assert in_memory(os.getpid()) == []
        with open_client(kind, grpc_url(server), timeout_s=60) as client:
            assert client.classify(photos / "coffee.png").classes[0].label == "espresso"
        assert server.process.poll() is None

    def test_closing_while_calls_are_in_flight(self, kind: str, server: TritonServer, photos: Path) -> None:
        coffee = (photos / "coffee.png").read_bytes()
        for wait_s in (0.0, 0.02, 0.05, 0.1):
            options = {"shared_memory": True}
            with open_client(kind, grpc_url(server), **options) as client, ThreadPoolExecutor(8) as threads:
                calls = [threads.submit(client.classify, coffee) for _ in range(8)]
                time.sleep(wait_s)
                client.close()
                assert {type(call.exception(30)) for call in calls} <= {type(None), ClosedError}
            assert in_memory(os.getpid()) == []
        assert server.process.poll() is None

    def test_no_memory_is_told(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where /dev/shm is full, as a container's 64 MB soon are."""

        def full(descriptor: int, offset: int, size: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        why = r"shared memory: expected 1048576 free bytes.*No space left"
        with (
            open_client(kind, "grpc://127.0.0.1:1", shared_memory=True) as client,
            pytest.raises(ServiceError, match=why),
        ):
            client.classify(b"x")
        assert in_memory(os.getpid()) == []


PROGRAM = """
import sys, time
from pathlib import Path
from client import PipelineClient
with PipelineClient(sys.argv[1], shared_memory=True) as client:
    for number in range(10**9):
        client.classify(Path(sys.argv[2]))
        print(number, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left_after_a_signal(server: TritonServer, photos: Path, number: signal.Signals) -> None:
    """After a kill nobody can tell the server, which keeps its own mapping; the name is gone all the same."""
    command = [sys.executable, "-c", PROGRAM, grpc_url(server), str(photos / "coffee.png")]
    with child(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
        assert len(in_memory(process.pid)) == 1
        process.send_signal(number)
        process.wait(20)
        deadline = time.monotonic() + 10
        while in_memory(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)  # the resource tracker is a process of its own
        assert in_memory(process.pid) == []
    with open_client("blocking", grpc_url(server)) as client:
        assert client.classify(photos / "coffee.png").classes[0].label == "espresso"


def test_calls_without_an_answer_do_not_pile_regions_up(server: TritonServer) -> None:
    """The server keeps such a region until its end, so there must be no more of them than calls at a time."""
    image = slow_image()

    async def run() -> None:
        async with AsyncPipelineClient(grpc_url(server), shared_memory=True) as client:
            await client.classify([np.zeros((1, 1, 3), np.uint8)])
            for _ in range(10):
                task = asyncio.create_task(client.classify(image))
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert len(in_memory(os.getpid())) == 1

    before = registered(server, os.getpid())
    asyncio.run(run())
    assert in_memory(os.getpid()) == []
    assert len(registered(server, os.getpid())) <= len(before) + 1


def test_a_region_is_lent_to_one_call_at_a_time() -> None:
    pool = RegionPool()
    with pool.lend(b"first") as first, pool.lend(b"second") as second:
        assert first.name != second.name
        regions = {first.name: first, second.name: second}
        first.is_registered = second.is_registered = True
    with pool.lend(bytes(2 * shared_memory.MIN_REGION_BYTES)) as larger:
        assert larger.name not in regions  # and as the server was not told of it, it is gone
    with pytest.raises(DeadlineError), pool.lend(b"third") as late:
        raise DeadlineError("x")
    assert late.name in regions
    assert set(in_memory(os.getpid())) == set(regions)
    with pool.lend(b"fourth"), pool.lend(b"fifth"):
        assert pool.close() == []
    assert in_memory(os.getpid()) == []


def test_what_the_server_may_still_read_is_not_unregistered() -> None:
    pool = RegionPool()
    with pool.lend(b"first") as first, pool.lend(b"second") as second:
        first.is_registered = second.is_registered = True
    with pytest.raises(DeadlineError), pool.lend(b"third") as late:
        raise DeadlineError("x")
    assert pool.close() == [one.name for one in (first, second) if one is not late]
    assert in_memory(os.getpid()) == []
