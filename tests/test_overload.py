"""More requests than the queue takes, and requests whose callers no longer wait: refused, and not executed."""

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tritonclient.utils
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from client import DeadlineError, OverloadedError
from client.operations import STATISTICS
from export.repository import TRACKED_REPOSITORY, read_configs
from server.process import TritonServer
from tests.asking import ask
from tests.fakes import KINDS, PROTOCOLS, open_client
from tests.running import grpc_url, http_url, started

BATCH = 32  # max_batch_size
AT_ONCE = 80  # more than two that are executed, a batch that is made up, and the queue
ANSWERED_WITHIN_S = 60


def small_file() -> bytes:
    return bytes(cv2.imencode(".png", np.zeros((8, 8, 3), np.uint8))[1])


def slow_file() -> bytes:
    """Tens of milliseconds of work, in few bytes."""
    return bytes(cv2.imencode(".png", np.zeros((2500, 2500, 3), np.uint8))[1])


def executed(server: TritonServer, model: str) -> int:
    """Images that `model` has been through, by the server's own count."""
    with open_client("blocking", grpc_url(server)) as client:
        counts = client.control(STATISTICS)["model_stats"]
    return sum(int(one["inference_count"]) for one in counts if one["name"] == model)


def test_every_first_step_takes_512_requests_and_no_more() -> None:
    for name, config in read_configs(TRACKED_REPOSITORY).items():
        policy = config.dynamic_batching.default_queue_policy
        assert policy.max_queue_size == (512 if name.startswith("preprocess") else 0)


def test_512_requests_at_once_are_all_answered(server: TritonServer) -> None:
    file = small_file()
    with ThreadPoolExecutor(512) as threads:
        calls = [threads.submit(ask, server, PROTOCOLS[number % 2], [file]) for number in range(512)]
        assert all(call.result(ANSWERED_WITHIN_S)["error"][0, 0] == b"" for call in calls)


@pytest.fixture(scope="module")
def short_queue(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server of which `preprocess` queues one request besides those that Triton has made up to batches."""
    repository = Path(shutil.copytree(lite0, tmp_path_factory.mktemp("short") / "repository"))
    path = repository / "preprocess" / "config.pbtxt"
    config = text_format.Parse(path.read_text("utf-8"), ModelConfig())
    config.dynamic_batching.default_queue_policy.max_queue_size = 1
    path.write_text(text_format.MessageToString(config), "utf-8")
    with started(repository) as server:
        yield server


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_too_many_is_refused_at_once_and_not_executed(short_queue: TritonServer, protocol: str) -> None:
    file, before = slow_file(), executed(short_queue, "preprocess")

    def outcome(_: int) -> tuple[str, float]:
        began = time.monotonic()
        try:
            ask(short_queue, protocol, [file])
        except tritonclient.utils.InferenceServerException as error:
            return str(error), time.monotonic() - began
        return "", time.monotonic() - began

    with ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = list(threads.map(outcome, range(AT_ONCE), timeout=ANSWERED_WITHIN_S))
    refused = [seconds for error, seconds in outcomes if error]
    answered = [seconds for error, seconds in outcomes if not error]
    print(f"{len(answered)} answered, the last after {max(answered):.2f} s; {len(refused)} refused")
    assert {error.split()[-1] for error, _ in outcomes if error} == {"size"}, outcomes
    assert all("Exceeds maximum queue size" in error for error, _ in outcomes if error)
    assert refused
    assert answered
    assert min(refused) < max(answered)  # it did not wait for its turn to be refused
    assert executed(short_queue, "preprocess") - before == len(answered)


@pytest.mark.parametrize(("kind", "protocol"), zip(KINDS, PROTOCOLS, strict=True))
def test_the_client_retries_what_was_refused(short_queue: TritonServer, kind: str, protocol: str) -> None:
    file, url = slow_file(), grpc_url(short_queue) if protocol == "grpc" else http_url(short_queue)

    def errors(max_retries: int | None) -> list[BaseException]:
        options: dict[str, Any] = {"max_in_flight": AT_ONCE, "max_retries": max_retries, "timeout_s": ANSWERED_WITHIN_S}
        with open_client(kind, url, **options) as client, ThreadPoolExecutor(AT_ONCE) as threads:
            calls = [threads.submit(client.classify, file) for _ in range(AT_ONCE)]
            return [error for call in calls if (error := call.exception(ANSWERED_WITHIN_S))]

    overloaded = errors(max_retries=0)
    assert 0 < len(overloaded) < AT_ONCE
    assert all(isinstance(error, OverloadedError) and error.may_be_retried for error in overloaded)
    assert errors(max_retries=None) == []


def test_what_is_beyond_its_deadline_is_not_executed(server: TritonServer) -> None:
    """Over HTTP too, where the server does not hear that a client has gone."""
    # Two instances, and behind them one batch that Triton has made up already and leaves as it is.
    blocking = [slow_file()] * BATCH
    before = executed(server, "preprocess")
    with ThreadPoolExecutor(3) as threads:
        blocked = [threads.submit(ask, server, "grpc", blocking) for _ in range(3)]
        time.sleep(0.2)
        callers = [
            threading.Thread(target=give_up, args=(kind, url))
            for kind in KINDS
            for url in (grpc_url(server), http_url(server))
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert not blocked[2].done(), "expected the machine to be busy with what was sent first"
        for one in blocked:
            one.result(ANSWERED_WITHIN_S)
    ask(server, "http", [small_file()])  # behind all that is left
    assert executed(server, "preprocess") - before == 3 * BATCH + 1


def give_up(kind: str, url: str) -> None:
    with open_client(kind, url, timeout_s=0.2) as client, pytest.raises(DeadlineError):
        client.classify(small_file())
