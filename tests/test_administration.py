"""`python -m client status`, `watch` and `models`, against the running server; references by tritonclient itself."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import server.process
from client import AccessError, NotServedError, PipelineClient, RefusedError
from client.administration import (
    Model,
    ServerStatus,
    Statistics,
    load_model,
    parse_models,
    parse_statistics,
    rates_between,
    step_order,
    unload_model,
)
from client.command_line.columns import columns, number
from client.command_line.live import sparkline, time_bar
from server.process import TritonServer
from server.triton_client import ADMIN_KEY_HEADER
from tests.asking import ask, connect
from tests.running import child, grpc_url, http_url, server_options, started

CLIENT = [sys.executable, "-m", "client"]
STEPS = ["pipeline", "preprocess", "efficientnet_lite0", "postprocess", "pipeline_frames", "preprocess_frames"]
WITHIN_S = 30


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    outcome = subprocess.run([*CLIENT, *arguments], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in outcome.stderr
    return outcome


def http_key(server: TritonServer) -> list[str]:
    return ["--header", f"{ADMIN_KEY_HEADER}={server.client.admin_key}"]


@pytest.fixture(params=["grpc", "http"])
def url(request: pytest.FixtureRequest, server: TritonServer) -> str:
    return grpc_url(server) if request.param == "grpc" else http_url(server)


@pytest.fixture(scope="module")
def own_repository(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose servers may be stopped, and its models unloaded."""
    return shutil.copytree(lite0, tmp_path_factory.mktemp("own") / "repository")


@pytest.fixture(scope="module")
def own_server(own_repository: Path) -> Iterator[TritonServer]:
    """A server whose models may be unloaded; each test leaves all of them loaded."""
    with started(own_repository) as own:
        yield own


# Statistics, and what differs between two looks


def reply(form: type = int, **counts: int) -> Any:
    """A reply with one model, as HTTP has it, or with numbers of 64 bits as text (`form` str), as gRPC has it."""
    of = {"success": 0, "fail": 0, "computed": 0, "images": 0, "executions": 0, "queue_ns": 0, "infer_ns": 0, **counts}
    model = {
        "name": "m",
        "version": "1",
        "inference_count": form(of["images"]),
        "execution_count": form(of["executions"]),
        "inference_stats": {
            "success": {"count": form(of["success"]), "ns": form(0)},
            "fail": {"count": form(of["fail"]), "ns": form(0)},
            "queue": {"count": form(of["success"]), "ns": form(of["queue_ns"])},
            "compute_input": {"count": form(of["computed"]), "ns": form(0)},
            "compute_infer": {"count": form(of["computed"]), "ns": form(of["infer_ns"])},
            "compute_output": {"count": form(of["computed"]), "ns": form(2_000_000)},
        },
        "batch_stats": [{"batch_size": form(8), "compute_infer": {"count": form(of["executions"]), "ns": form(1)}}],
    }
    return {"model_stats": [model]}


def status_of(statistics: dict[tuple[str, str], Statistics], taken_s: float, **changes: Any) -> ServerStatus:
    status = ServerStatus(
        url="grpc://host:8001",
        name="triton",
        version="2.51.0",
        is_ready=True,
        models=parse_models(None, statistics, {}),
        is_index_restricted=True,
        taken_s=taken_s,
    )
    return replace(status, **changes)


FEW: Any = {"success": 5, "computed": 4, "images": 30, "executions": 4, "queue_ns": 10_000_000, "infer_ns": 60_000_000}
MORE: Any = {"success": 9, "computed": 8, "images": 62, "executions": 8, "queue_ns": 12_000_000, "infer_ns": 70_000_000}


@pytest.mark.parametrize("form", [str, int], ids=["grpc", "http"])
def test_means_of_a_request(form: type) -> None:
    statistics = parse_statistics(reply(form, fail=2, **FEW))["m", "1"]
    assert (statistics.success_count, statistics.failure_count, statistics.image_count) == (5, 2, 30)
    assert (statistics.queue_ms, statistics.infer_ms, statistics.output_ms) == (2.0, 15.0, 0.5)
    assert statistics.mean_batch_size == 7.5
    assert statistics.executions_by_batch_size == {8: 4}


def test_no_mean_without_a_request() -> None:
    statistics = parse_statistics(reply())["m", "1"]
    assert statistics.queue_ms is statistics.input_ms is statistics.infer_ms is statistics.mean_batch_size is None


def test_rates_of_an_interval() -> None:
    earlier = status_of(parse_statistics(reply(**FEW)), 100.0)
    later = status_of(parse_statistics(reply(fail=1, **MORE)), 102.0)
    rates = rates_between(earlier, later)["m", "1"]
    assert (rates.images_per_s, rates.failures_per_s) == (16.0, 0.5)
    assert (rates.mean_batch_size, rates.queue_ms, rates.infer_ms, rates.compute_ms) == (8.0, 0.5, 2.5, 2.5)


def test_counters_that_restarted_count_from_nothing() -> None:
    earlier = status_of(parse_statistics(reply(**MORE)), 100.0)
    later = status_of(parse_statistics(reply(**FEW)), 102.0)
    assert rates_between(earlier, later)["m", "1"].images_per_s == 15.0


def test_a_model_that_was_loaded_meanwhile_counts_from_nothing() -> None:
    later = status_of(parse_statistics(reply(**FEW)), 102.0)
    assert rates_between(status_of({}, 100.0), later)["m", "1"].images_per_s == 15.0


counts = st.integers(0, 50)
statistics_of_any_kind = st.builds(
    Statistics,
    success_count=counts,
    failure_count=counts,
    computed_count=counts,
    image_count=counts,
    execution_count=counts,
    queue_ns=counts,
    input_ns=counts,
    infer_ns=counts,
    output_ns=counts,
    executions_by_batch_size=st.dictionaries(st.integers(1, 3), counts),
)


@given(statistics_of_any_kind, statistics_of_any_kind)
def test_no_rate_is_ever_negative(earlier: Statistics, later: Statistics) -> None:
    looks = [status_of({("m", "1"): one}, at) for at, one in enumerate((earlier, later))]
    rates = asdict(rates_between(*looks)["m", "1"])
    assert min(value for value in rates.values() if value is not None) >= 0


@pytest.mark.parametrize(
    ("names", "steps", "expected"),
    [
        ({"b", "a"}, {}, ["a", "b"]),
        ({"a", "z", "pipeline"}, {"pipeline": ["z", "a"]}, ["pipeline", "z", "a"]),
        ({"a", "pipeline"}, {}, ["pipeline", "a"]),  # not loaded, so that its steps are not known
        ({"a", "b", "e", "f"}, {"f": ["b"], "e": ["b", "a"]}, ["e", "b", "a", "f"]),
    ],
    ids=["no ensemble", "steps", "pipeline unloaded", "shared step"],
)
def test_the_order_of_steps(names: set[str], steps: dict[str, list[str]], expected: list[str]) -> None:
    assert step_order(names, steps) == expected


def model(name: str, state: str, reason: str = "") -> Model:
    return Model(name=name, version="1", state=state, reason=reason, ensembles=(), statistics=None)


@pytest.mark.parametrize(
    ("models", "is_ready", "problems"),
    [
        ([model("pipeline", "READY"), model("spare", "")], True, []),
        ([model("pipeline", "READY")], False, ["server: expected it to be ready, it is not"]),
        ([], True, ["model pipeline: expected READY, it is not loaded"]),
        ([model("pipeline", "")], True, ["model pipeline: expected READY, it is not loaded"]),
        ([model("pipeline", "READY"), model("pipeline", "UNAVAILABLE", "unloaded")], True, []),
        ([model("pipeline", "READY"), model("pipeline", "UNLOADING")], True, []),
        (
            [model("pipeline", "READY"), model("pipeline", "UNAVAILABLE", "damaged")],
            True,
            ["model pipeline: expected READY, got UNAVAILABLE: damaged"],
        ),
        (
            [model("pipeline", "UNAVAILABLE", "unloaded"), model("a", "LOADING")],
            True,
            ["model pipeline: expected READY, got UNAVAILABLE: unloaded", "model a: expected READY, got LOADING"],
        ),
    ],
    ids=["ready", "server", "unseen", "never loaded", "replaced", "being replaced", "failed version", "others"],
)
def test_what_is_not_ready(models: list[Model], is_ready: bool, problems: list[str]) -> None:
    assert status_of({}, 0, models=models, is_ready=is_ready).problems == problems


# status


def status(url: str, *arguments: str) -> Any:
    outcome = run("status", "--url", url, "--format", "json", *arguments)
    assert outcome.returncode == 0, outcome.stderr
    return json.loads(outcome.stdout)


def statistics_by_name(status: Any) -> dict[str, Any]:
    return {one["name"]: one["statistics"] for one in status["models"]}


def photo(photos: Path) -> bytes:
    return (photos / "rocket.jpg").read_bytes()


def test_status_counts_the_requests_that_were_sent(server: TritonServer, url: str, photos: Path) -> None:
    before = statistics_by_name(status(url))
    for batch_size in (1, 4, 4):
        ask(server, "grpc", [photo(photos)] * batch_size)
    with pytest.raises(Exception, match="not_an_image"):
        ask(server, "grpc", [b"no image"])
    after = statistics_by_name(status(url))
    for name, images in (("pipeline", 9), ("efficientnet_lite0", 9), ("postprocess", 9), ("pipeline_frames", 0)):
        assert after[name]["image_count"] - before[name]["image_count"] == images, name
    more = {name: after["pipeline"][name] - before["pipeline"][name] for name in ("success_count", "failure_count")}
    assert more == {"success_count": 3, "failure_count": 2}  # Triton 24.10 counts a failure of an ensemble twice
    sizes = [one["pipeline"]["executions_by_batch_size"] for one in (before, after)]
    assert [sizes[1][size] - sizes[0].get(size, 0) for size in ("1", "4")] == [1, 2]


def test_status_agrees_with_tritonclient(server: TritonServer, url: str, photos: Path) -> None:
    ask(server, "http", [photo(photos)] * 3)
    shown = statistics_by_name(status(url))
    reference = connect(server, "http").get_inference_statistics()["model_stats"]
    assert {one["name"] for one in reference} == set(shown) == set(STEPS)
    for one in reference:
        ours, times = shown[one["name"]], one["inference_stats"]
        assert ours["image_count"] == one["inference_count"]
        assert ours["execution_count"] == one["execution_count"]
        for name, theirs in (("queue", "queue"), *((part, f"compute_{part}") for part in ("input", "infer", "output"))):
            total = times[theirs]
            expected = total["ns"] / 1e6 / total["count"] if total["count"] else None
            assert ours[f"{name}_ms"] == (expected and pytest.approx(expected)), (one["name"], name)


def test_status_as_a_table(server: TritonServer, url: str) -> None:
    outcome = run("status", "--url", url)
    assert outcome.returncode == 0, outcome.stderr
    first, _, head, *lines = outcome.stdout.splitlines()
    assert re.fullmatch(rf"triton [\d.]+ at {re.escape(url)}: ready", first)
    assert head.split() == ["model", "version", "state", "answered", "failures", "images", "executions"]
    assert [line.split()[0] for line in lines[: len(STEPS)]] == STEPS
    assert lines[1].startswith("  preprocess ")
    assert max(map(len, outcome.stdout.splitlines())) <= 120


def test_status_where_the_index_needs_a_key(server: TritonServer) -> None:
    without = run("status", "--url", http_url(server))
    assert without.returncode == 0
    assert "their index is restricted, so these are from the statistics" in without.stderr
    assert "--header triton-admin-key=KEY" in without.stderr
    with_key = run("status", "--url", http_url(server), *http_key(server))
    assert (with_key.returncode, with_key.stderr) == (0, "")
    assert run("status", "--url", grpc_url(server)).stderr == ""


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_status_of_no_server(scheme: str) -> None:
    outcome = run("status", "--url", f"{scheme}://127.0.0.1:1")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert f"{scheme}://127.0.0.1:1: expected the answer of a Triton server" in outcome.stderr


def test_status_of_something_else(server: TritonServer) -> None:
    outcome = run("status", "--url", f"http://127.0.0.1:{server.options.metrics_port}")
    assert outcome.returncode == 1
    assert "expected the answer of a Triton server" in outcome.stderr


# models


def way_to(own: TritonServer, protocol: str) -> list[str]:
    return ["--url", grpc_url(own)] if protocol == "grpc" else ["--url", http_url(own), *http_key(own)]


def is_ready(own: TritonServer, name: str) -> bool:
    client = connect(own, "grpc")
    try:
        return bool(client.is_model_ready(name))
    finally:
        client.close()


def test_models_are_listed(url: str) -> None:
    outcome = run("models", "list", "--url", url)
    assert outcome.returncode == 0
    head, *lines = outcome.stdout.splitlines()
    assert head.split() == ["model", "version", "state", "reason"]
    assert [line.split() for line in lines] == [[name, "1", "READY"] for name in STEPS]
    assert ("index is restricted" in outcome.stderr) == url.startswith("http")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_models_in_quick_succession(own_server: TritonServer, protocol: str, photos: Path) -> None:
    way = way_to(own_server, protocol)
    for _ in range(3):
        assert run("models", "unload", "pipeline", *way).stdout == "pipeline: unloaded\n"
        assert not is_ready(own_server, "pipeline")
        assert run("models", "load", "pipeline", *way).stdout == "pipeline: loaded\n"
        assert is_ready(own_server, "pipeline")
    assert ask(own_server, "grpc", [photo(photos)])["error"][0, 0] == b""
    assert own_server.process.poll() is None


def test_half_a_second_lies_between_a_load_and_an_unload(own_server: TritonServer) -> None:
    with PipelineClient(grpc_url(own_server)) as client:
        load_model(client, "pipeline_frames")
        loaded_s = time.monotonic()
        unload_model(client, "pipeline_frames")
        assert time.monotonic() - loaded_s > 0.5
        load_model(client, "pipeline_frames")


def test_a_step_takes_its_ensemble_along(own_server: TritonServer) -> None:
    way = way_to(own_server, "grpc")
    refused = run("models", "unload", "preprocess", *way)
    assert refused.returncode == 1
    assert "that no loaded ensemble needs, got preprocess, a step of pipeline; --force unloads both" in refused.stderr
    assert is_ready(own_server, "pipeline")
    forced = run("models", "unload", "preprocess", "--force", *way)
    assert forced.stdout == "preprocess and pipeline: unloaded\n"
    assert not is_ready(own_server, "pipeline")
    assert not is_ready(own_server, "preprocess")
    listed = run("models", "list", *way).stdout.splitlines()
    assert [line.split() for line in listed if "unloaded" in line] == [
        ["pipeline", "1", "UNAVAILABLE", "unloaded"],
        ["preprocess", "1", "UNAVAILABLE", "unloaded"],
    ]
    unwell = run("status", *way)
    assert unwell.returncode == 1
    assert "model pipeline: expected READY, got UNAVAILABLE: unloaded" in unwell.stderr
    over_http = run("status", "--url", http_url(own_server))  # where what is unloaded is not seen
    assert over_http.returncode == 1
    assert "model pipeline: expected READY, it is not loaded" in over_http.stderr
    assert run("models", "load", "pipeline", *way).returncode == 0
    assert run("status", *way).returncode == 0


def test_a_shared_step_names_both_ensembles(own_server: TritonServer) -> None:
    with (
        PipelineClient(grpc_url(own_server)) as client,
        pytest.raises(RefusedError, match="a step of pipeline and pipeline_frames"),
    ):
        unload_model(client, "postprocess")


@pytest.mark.parametrize("action", [load_model, unload_model])
def test_an_unknown_model(own_server: TritonServer, action: Callable[[PipelineClient, str], Any]) -> None:
    with PipelineClient(grpc_url(own_server)) as client, pytest.raises(NotServedError, match=r"one of .*, got no_such"):
        action(client, "no_such")


def test_a_model_that_cannot_be_loaded(own_repository: Path, tmp_path: Path) -> None:
    repository = shutil.copytree(own_repository, tmp_path / "repository")
    with started(repository) as own:
        (repository / "postprocess" / "1" / "model.py").write_text("raise ValueError('out of order')")
        outcome = run("models", "load", "postprocess", *way_to(own, "http"))
        assert outcome.returncode == 1
        assert "ValueError: out of order" in outcome.stderr


@pytest.mark.parametrize("arguments", [["load", "pipeline"], ["unload", "pipeline"]], ids=str)
def test_models_without_the_key(server: TritonServer, arguments: list[str]) -> None:
    outcome = run("models", *arguments, "--url", http_url(server))
    assert outcome.returncode == 1
    assert "give the key: --header triton-admin-key=KEY; over gRPC none is needed on the server's" in outcome.stderr


def test_models_with_a_key_over_grpc(own_repository: Path, tmp_path: Path) -> None:
    repository = shutil.copytree(own_repository, tmp_path / "repository")
    with started(repository, f"--grpc-restricted-protocol=model-repository:{ADMIN_KEY_HEADER}=secret") as own:
        way = way_to(own, "grpc")
        without = run("models", "load", "pipeline", *way)
        assert without.returncode == 1
        header = "triton-grpc-protocol-triton-admin-key"
        assert f"give the key: --header {header}=KEY" in without.stderr
        assert "their index is restricted" in run("status", *way).stderr
        assert run("models", "load", "pipeline", *way, "--header", f"{header}=secret").returncode == 0
        with PipelineClient(grpc_url(own), headers={header: "wrong"}) as client, pytest.raises(AccessError):
            load_model(client, "pipeline")


def test_a_server_without_model_control(own_repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = server.process.command_line
    explicit = {"--model-control-mode=explicit", "--load-model=*"}
    monkeypatch.setattr(
        server.process, "command_line", lambda *options: [one for one in whole(*options) if one not in explicit]
    )
    with started(shutil.copytree(own_repository, tmp_path / "repository")) as own:
        for protocol in ("grpc", "http"):
            outcome = run("models", "unload", "pipeline", *way_to(own, protocol))
            assert outcome.returncode == 1
            assert "start the server with --model-control-mode=explicit" in outcome.stderr


# watch


def next_line(watch: "subprocess.Popen[str]", wanted: str) -> str:
    """Read lines until one has `wanted` in it; each look comes within the command's --timeout-s."""
    assert watch.stdout is not None
    end_s = time.monotonic() + WITHIN_S
    for line in watch.stdout:
        if wanted in line:
            return line
        assert time.monotonic() < end_s, f"no line with {wanted}"
    assert watch.stderr is not None
    raise AssertionError(f"the output ended before {wanted}: {watch.stderr.read()}")


def watching(url: str, *arguments: str) -> "contextlib.AbstractContextManager[subprocess.Popen[str]]":
    command = [*CLIENT, "watch", "--url", url, "--interval-s", "0.5", *arguments]
    return child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_watch_counts_the_images_of_each_interval(server: TritonServer, url: str, photos: Path) -> None:
    with watching(url, "--format", "json") as watch:
        looks = [json.loads(next_line(watch, "")) for _ in range(2)]
        for batch_size in (1, 2, 3):
            ask(server, "http", [photo(photos)] * batch_size)
        asked_s = time.time()
        while datetime.fromisoformat(looks[-1]["time"]).timestamp() < asked_s + 1:
            looks.append(json.loads(next_line(watch, "")))
        watch.send_signal(signal.SIGINT)
        assert watch.wait(10) == 130
        assert watch.stderr is not None
        assert watch.stderr.read() == ""
    assert [one["rates"] for one in looks[0]["models"]] == [None] * len(STEPS)
    assert [one["name"] for one in looks[1]["models"]] == STEPS
    times = [datetime.fromisoformat(look["time"]) for look in looks]
    intervals_s = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    pipeline = [look["models"][0]["rates"] for look in looks[1:]]
    images = sum(rates["images_per_s"] * seconds for rates, seconds in zip(pipeline, intervals_s, strict=True))
    assert images == pytest.approx(6, rel=0.1)  # the times are those of the lines, written a little later
    assert {look["problems"] == [] for look in looks} == {True}


def test_watch_of_looks_that_take_longer_than_the_interval(server: TritonServer) -> None:
    with watching(grpc_url(server), "--interval-s", "0.000001") as watch:
        for _ in range(50):
            assert "ready; " in next_line(watch, "pipeline_frames idle")


def test_watch_in_lines(server: TritonServer, photos: Path) -> None:
    with watching(grpc_url(server)) as watch:
        assert "pipeline idle; preprocess idle; " in next_line(watch, "idle")
        ask(server, "grpc", [photo(photos)] * 2)
        while "; pipeline idle; " in (line := next_line(watch, "")):
            pass
    rates = r"[\d.]+ images/s, queue [\d.]+ ms, compute [\d.]+ ms, batch 2.00, 0 failures/s"
    assert re.match(rf"[\d-]+T[\d:]+ ready; pipeline {rates}; ", line)


@pytest.fixture
def in_turn(own_repository: Path, tmp_path: Path) -> Callable[[], Any]:
    """Starts servers on the same ports, one after the other."""
    options = server_options(shutil.copytree(own_repository, tmp_path / "repository"))

    @contextlib.contextmanager
    def start() -> Iterator[TritonServer]:
        with TritonServer(options) as one:
            one.wait_until_ready()
            yield one

    return start


def test_watch_outlives_the_server(in_turn: Callable[[], Any], photos: Path) -> None:
    with contextlib.ExitStack() as stack:
        with in_turn() as first:
            watches = [
                stack.enter_context(watching(url, "--format", "json")) for url in (grpc_url(first), http_url(first))
            ]
            for _ in range(5):
                ask(first, "grpc", [photo(photos)])
            for watch in watches:
                next_line(watch, '"images_per_s": ')
        for watch in watches:
            assert "expected the answer of a Triton server" in next_line(watch, '"models": null')
        with in_turn():
            for watch in watches:
                assert json.loads(next_line(watch, '"problems": []'))["models"][0]["rates"] is None
                again = json.loads(next_line(watch, '"images_per_s": '))
                assert min(one["rates"]["images_per_s"] for one in again["models"]) >= 0


@contextlib.contextmanager
def terminal(command: list[str], width: int) -> Iterator[tuple["subprocess.Popen[str]", Callable[[str], str]]]:
    """A program on a pseudo terminal, and what reads its output until something stands there."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, width, 0, 0))
    os.set_blocking(ours, False)

    def read_until(wanted: str) -> str:
        text, end_s = "", time.monotonic() + WITHIN_S
        while wanted not in text:
            assert time.monotonic() < end_s, text
            with contextlib.suppress(BlockingIOError):
                text += os.read(ours, 1 << 16).decode(errors="replace")
            time.sleep(0.02)
        return text

    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    try:
        with child(command, stdin=its, stdout=its, stderr=its, env=environment) as program:
            yield program, read_until
    finally:
        os.close(ours)
        os.close(its)


SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"  # the cursor


@pytest.mark.parametrize(("stop", "exit_status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_watch_on_a_terminal(server: TritonServer, photos: Path, stop: signal.Signals, exit_status: int) -> None:
    command = [*CLIENT, "watch", "--url", grpc_url(server), "--interval-s", "0.3"]
    with terminal(command, width=120) as (watch, read_until):
        first = read_until("preprocess_frames")
        assert "ready" in first
        assert HIDDEN in first
        ask(server, "grpc", [photo(photos)] * 3)
        read_until("█")
        watch.send_signal(stop)
        assert watch.wait(10) == exit_status
        assert "Traceback" not in read_until(SHOWN)


def test_watch_of_a_narrow_terminal_fits(server: TritonServer) -> None:
    command = [*CLIENT, "watch", "--url", grpc_url(server), "--interval-s", "0.3"]
    with terminal(command, width=80) as (_, read_until):
        text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", read_until("preprocess_frames") + read_until("preprocess_frames"))
    assert max(len(line) for line in re.split(r"[\r\n]+", text)) <= 80
    assert "…" not in text


def test_watch_without_rich(server: TritonServer) -> None:
    code = "import sys; sys.modules['rich'] = None; from client.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "watch", "--url", grpc_url(server)]
    with terminal(command, width=200) as (watch, read_until):
        assert "expected the package rich for a terminal: " in read_until("pip install 'triton-classify[cli]'")
        assert watch.wait(10) == 2
    piped = [*command, "--interval-s", "0.2"]
    with child(piped, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        assert "ready" in next_line(watch, "pipeline")


# What is drawn


def test_numbers() -> None:
    assert [number(value) for value in (None, 0, 0.0123, 4.567, 9.996, 45.67, 4567.8)] == [
        *("-", "0", "0.01", "4.57", "10.0", "45.7", "4,568")
    ]


def test_columns() -> None:
    assert columns([["model", "images"], ["pipeline", "12"]], "<>") == "model     images\npipeline      12"


def test_a_sparkline_is_as_high_as_its_highest() -> None:
    assert sparkline([None, 0, 5, 10]).plain == " ▁▅█"
    assert sparkline([0, None, 0]).plain == "▁ ▁"


def test_a_bar_has_the_parts_of_a_requests_time() -> None:
    earlier = status_of(parse_statistics(reply(**FEW)), 0)
    rates = rates_between(earlier, status_of(parse_statistics(reply(**MORE)), 1))["m", "1"]  # queue 0.5, infer 2.5
    bar = time_bar(rates, longest_ms=6, width=24)
    assert (len(bar.plain), [(part.end - part.start, part.style) for part in bar.spans if part.end > part.start]) == (
        12,
        [(2, "yellow"), (10, "green")],
    )
    assert time_bar(None, 6, 24).plain == ""
