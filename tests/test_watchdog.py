"""The watchdog of `python -m server`: what it brings back, what it tells, and that nothing is left over."""

import contextlib
import os
import re
import shutil
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from server.errors import ServerError
from server.options import ServerOptions
from server.watchdog import supervisor
from server.watchdog.healing import instance_count
from server.watchdog.probe import stuck_step
from server.watchdog.stubs import Stub, stubs_of
from tests.asking import connect_to, padded, tensor
from tests.running import child, leftovers, processes_of, server_options, triton_of

CONCURRENCY = 16
STUBS = 6  # of efficientnet_lite0's repository


@dataclass
class Launched:
    """`python -m server`, which is ready."""

    options: ServerOptions
    pid: int
    log: Path

    @property
    def triton_pid(self) -> int:
        return triton_of(self.pid)

    def stubs(self, model: str = "") -> list[Stub]:
        return [stub for stub in stubs_of(self.triton_pid) if model in ("", stub.model)]

    def get(self, path: str) -> tuple[int, str]:
        return get(f"{self.options.health_url}{path}")

    def wait_until(self, holds: Callable[[], bool], within_s: float) -> float:
        """Returns the seconds that it took."""
        started = time.monotonic()
        while not holds():
            assert time.monotonic() - started < within_s, self.log.read_text()[-2000:]
            time.sleep(0.05)
        return time.monotonic() - started


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, OSError) as error:
        return 0, str(error)


@contextlib.contextmanager
def launched(repository: Path, *arguments: str) -> Iterator[Launched]:
    options = server_options(repository)
    ports = [f"--{name}-port={port}" for name, port in options.ports.items()]
    command = [sys.executable, "-m", "server", "--model-repository", str(repository), *ports, *arguments]
    log = repository.parent / "launcher.log"
    with log.open("wb") as file, child(command, stdout=file, stderr=file) as process:
        one = Launched(options, process.pid, log)
        one.wait_until(lambda: one.get("/ready")[0] == 200, within_s=60)
        yield one
    assert processes_of(repository) == []
    assert leftovers(process.pid) == []


@pytest.fixture(scope="module")
def service(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """For the tests that leave it whole; ten heals in ten minutes are as many as it gives a Triton."""
    repository = Path(shutil.copytree(lite0, tmp_path_factory.mktemp("service") / "repository"))
    with launched(repository) as one:
        yield one


@pytest.fixture
def own_service(own_repository: Path) -> Iterator[Launched]:
    with launched(own_repository) as one:
        yield one


@dataclass
class Load:
    """16 callers, who ask again and again; what each request came to, and how long it took."""

    labels: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    longest_s: float = 0
    answered: int = 0


@contextlib.contextmanager
def under_load(service: Launched, photo: Path) -> Iterator[Load]:
    load, over = Load(), threading.Event()
    image = tensor("grpc", "raw_image", padded([photo.read_bytes()]))

    def ask_again_and_again() -> None:
        with contextlib.closing(connect_to(service.options, "grpc")) as client:
            while not over.is_set():
                started = time.monotonic()
                try:
                    answer = client.infer("pipeline", [image], client_timeout=20)
                    load.labels.add(answer.as_numpy("label")[0, 0].decode())
                    load.answered += 1
                except InferenceServerException as error:
                    load.errors.append(str(error))
                load.longest_s = max(load.longest_s, time.monotonic() - started)

    with ThreadPoolExecutor(CONCURRENCY) as threads:
        calls = [threads.submit(ask_again_and_again) for _ in range(CONCURRENCY)]
        try:
            time.sleep(1)
            yield load
            time.sleep(1)
        finally:
            over.set()
        for call in calls:
            call.result(30)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("model", ["preprocess", "efficientnet_lite0", "postprocess"])
def test_a_process_that_dies_or_stops_is_brought_back(
    service: Launched, photos: Path, model: str, number: signal.Signals
) -> None:
    service.wait_until(lambda: len(service.stubs()) == STUBS, within_s=10)  # those of an earlier load have gone
    victim, said = service.stubs(model)[0], len(service.log.read_text())
    with under_load(service, photos / "coffee.png") as load:
        os.kill(victim.pid, number)
        took_s = service.wait_until(lambda: f"{model}: whole again" in service.log.read_text()[said:], within_s=20)
        answered = load.answered  # the callers may still wait for those that failed
        service.wait_until(lambda: load.answered > answered, within_s=3)
    assert load.labels == {"espresso"}
    assert all("is not healthy" in error or "shm" in error for error in load.errors), set(load.errors)
    service.wait_until(lambda: service.get("/ready") == (200, "ready\n"), within_s=5)  # the next probe tells
    assert f'triton_classify_model_heals_total{{model="{model}"}} ' in service.get("/metrics")[1]
    assert re.search(
        rf"model {model}: 1 of its processes died or stopped; loading it again", service.log.read_text()[said:]
    )
    print(
        f"{model} {number.name}: whole after {took_s:.1f} s, longest {load.longest_s:.1f} s, {len(load.errors)} errors"
    )


def test_ten_heals_leave_nothing_over(own_service: Launched, own_repository: Path) -> None:
    """No process, no shared memory, and no file of the repository written: it may be read-only."""
    files = {path: path.stat().st_mtime_ns for path in own_repository.rglob("*")}
    before = len(own_service.stubs()), len(leftovers(own_service.pid))

    def is_as_before() -> bool:
        return (len(own_service.stubs()), len(leftovers(own_service.pid))) == before

    for heals in range(1, 11):
        model = ("preprocess", "postprocess")[heals % 2]
        os.kill(own_service.stubs(model)[0].pid, signal.SIGKILL)
        own_service.wait_until(lambda: own_service.log.read_text().count("whole again") == heals, within_s=20)  # noqa: B023
        own_service.wait_until(is_as_before, within_s=10)
    assert {path: path.stat().st_mtime_ns for path in own_repository.rglob("*")} == files


def test_a_deadlock_is_ended(own_repository: Path, tmp_path: Path) -> None:
    trigger = tmp_path / "hang"
    path = own_repository / "postprocess" / "1" / "model.py"
    hang = f"        import os, time\n        while os.path.exists('{trigger}'): time.sleep(0.1)\n"
    path.write_text(path.read_text().replace("        responses: dict", f"{hang}        responses: dict", 1))
    with launched(own_repository) as service:
        trigger.touch()
        service.wait_until(lambda: service.get("/ready")[0] == 503, within_s=30)
        assert "postprocess: expected answers, got none for " in service.get("/ready")[1]
        trigger.unlink()
        service.wait_until(lambda: service.get("/ready")[0] == 200, within_s=20)
        assert "model postprocess: no image comes out of it; loading it again" in service.log.read_text()


def test_a_triton_that_dies_is_started_again(own_service: Launched) -> None:
    first = own_service.triton_pid
    os.kill(first, signal.SIGKILL)
    own_service.wait_until(lambda: own_service.get("/ready")[0] == 503, within_s=5)
    assert own_service.get("/ready")[1] == "Triton is started again: Triton ended by itself, with status 137\n"
    assert own_service.get("/live")[0] == 200
    own_service.wait_until(lambda: own_service.get("/ready")[0] == 200, within_s=30)
    assert own_service.triton_pid != first
    assert "triton_classify_server_restarts_total 1" in own_service.get("/metrics")[1]
    assert "starting Triton again in 1 s (1 of 5)" in own_service.log.read_text()


def test_an_unloaded_pipeline_is_not_ready_and_stays_so(service: Launched) -> None:
    with contextlib.closing(connect_to(service.options, "grpc")) as client:
        metrics = service.get("/metrics")[1]
        client.unload_model("pipeline")
        service.wait_until(lambda: service.get("/ready")[0] == 503, within_s=5)
        time.sleep(2)
        assert service.get("/metrics")[1] == metrics.replace("ready 1\n", "ready 0\n")
        client.load_model("pipeline")
    service.wait_until(lambda: service.get("/ready")[0] == 200, within_s=10)


def test_an_unloaded_step_is_not_healed(service: Launched) -> None:
    with contextlib.closing(connect_to(service.options, "grpc")) as client:
        client.unload_model("preprocess_frames")
        service.wait_until(lambda: service.stubs("preprocess_frames") == [], within_s=10)
        time.sleep(1)
        assert service.stubs("preprocess_frames") == []
        client.load_model("preprocess_frames")
    assert service.get("/ready")[0] == 200


def test_before_it_stops_it_says_so_and_goes_on_answering(own_service: Launched, photos: Path) -> None:
    with under_load(own_service, photos / "coffee.png") as load:
        os.kill(own_service.pid, signal.SIGTERM)
        own_service.wait_until(lambda: own_service.get("/ready") == (503, "stopping\n"), within_s=2)
        answered = load.answered
        time.sleep(1)
        assert load.answered > answered
    assert load.errors == []
    own_service.wait_until(lambda: own_service.get("/ready")[0] == 0, within_s=10)


def test_callers_who_go_on_cannot_hold_it_up(own_repository: Path, photos: Path) -> None:
    with launched(own_repository, "--drain-timeout-s=1") as service, under_load(service, photos / "coffee.png") as load:
        os.kill(service.pid, signal.SIGTERM)
        service.wait_until(lambda: processes_of(own_repository) == [], within_s=10)
        assert load.longest_s < 5  # what it had in hand was answered, or refused


def test_what_else_the_endpoint_says(service: Launched) -> None:
    assert service.get("/nonsense") == (404, "expected /ready, /live or /metrics\n")
    assert service.get("/live") == (200, "live\n")
    assert "triton_classify_ready 1\n" in service.get("/metrics")[1]


def test_a_crash_loop_ends_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr("server.watchdog.supervisor.time.sleep", delays.append)
    restarts: list[float] = []
    for _ in range(5):
        supervisor.wait_for_restart(restarts, "it ended")
    with pytest.raises(ServerError, match="started again 5 times within 10 minutes and failed once more: it ended"):
        supervisor.wait_for_restart(restarts, "it ended")
    assert delays == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [([], 0), ([{"count": 2}], 2), ([{"count": 2, "gpus": [0, 1]}, {"count": 1}], 5)],
)
def test_how_many_processes_a_model_has(groups: list[dict[str, object]], expected: int) -> None:
    assert instance_count({"instance_group": groups}) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"a": 1}, None),
        ({"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 2}, None),
        ({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 2}, None),
        ({"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 1}, "b"),
        ({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}, "a"),
    ],
)
def test_which_step_hangs(before: dict[str, int], after: dict[str, int], expected: str | None) -> None:
    assert stuck_step(["a", "b", "c"], before, after) == expected
