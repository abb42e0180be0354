"""A client that was made before its process was forked: each process gets its own answers."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client import PipelineClient
from client.shared_memory import RegionPool
from server.process import TritonServer
from tests.running import grpc_url, http_url

TIMEOUT_S = 60


def in_child(work: Callable[[Any], None]) -> Any:
    """A process, forked and started, and the queue that `work` is given."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,), daemon=True)
    process.start()
    return process, queue


def labels(client: PipelineClient, image: Path) -> set[str]:
    results = client.classify_each([image] * 60, top_k=1)
    return {result.classes[0].label if result.classes else str(result.error) for result in results}


@pytest.mark.parametrize("make_url", [grpc_url, http_url])
def test_a_forked_process_shares_no_connection(
    server: TritonServer, photos: Path, make_url: Callable[[TritonServer], str]
) -> None:
    with PipelineClient(make_url(server), timeout_s=20) as client:
        assert labels(client, photos / "coffee.png") == {"espresso"}  # connections are open
        process, queue = in_child(lambda queue: queue.put(labels(client, photos / "coffee.png")))
        ours = labels(client, photos / "rocket.jpg")
        assert queue.get(timeout=TIMEOUT_S) == {"espresso"}
        assert ours == {"missile"}
        process.join(TIMEOUT_S)
        assert process.exitcode == 0


def test_a_forked_process_is_lent_no_region_of_its_parent() -> None:
    pool = RegionPool()
    with pool.lend(b"ours") as region:
        region.is_registered = True
    try:
        process, queue = in_child(lambda queue: queue.put(pool.close()))
        assert queue.get(timeout=TIMEOUT_S) == []
        process.join(TIMEOUT_S)
        with pool.lend(b"ours again") as again:
            assert again is region
        assert Path("/dev/shm", region.name).exists()
    finally:
        pool.close()
