"""`python -m server`: what it checks, what it says, and that it leaves nothing behind, whatever ends it."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import tritonclient.grpc
import tritonclient.utils

from server import checks
from server.__main__ import serve
from server.errors import ServerError
from server.installation import Installation, find_installation
from server.process import TritonServer, command_line
from server.signals import StoppedBySignal
from tests.running import child, leftovers, processes_of, server_options

READY_S = 60


@pytest.fixture
def repository(lite0: Path, tmp_path: Path) -> Iterator[Path]:
    """A repository of this test's own; nothing may still serve it at the end."""
    path = tmp_path / "repository"
    shutil.copytree(lite0, path)
    yield path
    assert processes_of(path) == []


def command(repository: Path, *arguments: str) -> list[str]:
    ports = [f"--{name}-port={port}" for name, port in server_options(repository).ports.items()]
    return [sys.executable, "-m", "server", "--model-repository", str(repository), *ports, *arguments]


def run(repository: Path, *arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    """Run the server where it is expected to end by itself."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        command(repository, *arguments), capture_output=True, text=True, timeout=READY_S, **options
    )


def popen(repository: Path, *arguments: str) -> "AbstractContextManager[subprocess.Popen[str]]":
    """Run the server until it is told to stop."""
    return child(command(repository, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_for(process: "subprocess.Popen[str]", text: str) -> str:
    """Read the output up to the line that holds `text`."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"expected {text!r}, got:\n{seen}")


# Its life


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_within_10_s_and_leaves_nothing(repository: Path, number: int) -> None:
    with popen(repository) as process:
        seen = wait_for(process, "Ctrl-C stops it.")
        assert re.search(r"ready after [\d.]+ s, serving ", seen)
        assert re.search(r"gRPC     grpc://127\.0\.0\.1:\d+\n  HTTP     http://127\.0\.0\.1:\d+\n", seen)
        # Two Python models, one of them twice, for files and for frames, and the stand-in backend.
        assert sum("python_backend_stub" in line for line in processes_of(repository)) >= 5
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(timeout=15) == 0  # Triton's own exit status
        assert time.monotonic() - started < 10
    assert processes_of(repository) == []
    assert leftovers(process.pid) == []


def test_a_signal_right_after_the_message_is_none_before_it(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def print_and_stop(text: str, **options: object) -> None:
        raise StoppedBySignal(signal.SIGINT)

    monkeypatch.setattr("server.__main__.print", print_and_stop, raising=False)
    assert serve(server_options(repository), None) == 0  # Triton's own exit status


@pytest.mark.parametrize("delay_s", [0, 0.1, 0.2])
def test_ctrl_c_during_the_start_ends_it_with_one_message(repository: Path, delay_s: float) -> None:
    with popen(repository, "--log", str(repository.parent / "log")) as process:
        deadline = time.monotonic() + 30
        while not processes_of(repository) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=15)
    assert (process.returncode, output) == (130, "stopped by SIGINT before the server was ready\n")
    assert processes_of(repository) == []
    assert leftovers(process.pid) == []


def test_a_signal_in_the_moment_of_the_start_leaves_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = TritonServer._start

    def start_and_interrupt(server: TritonServer) -> "subprocess.Popen[bytes]":
        process = start(server)
        signal.raise_signal(signal.SIGINT)  # to this thread, which blocks it; others in pytest's process do not
        return process

    before = leftovers(os.getpid())  # of the servers that serve the whole run
    monkeypatch.setattr(TritonServer, "_start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        TritonServer(server_options(repository))
    assert processes_of(repository) == []
    assert leftovers(os.getpid()) == before


def test_triton_ends_with_us_even_where_we_are_killed(repository: Path) -> None:
    with popen(repository) as process:
        wait_for(process, "Ctrl-C stops it.")
        process.kill()
        process.wait(timeout=10)
        assert processes_of(repository, within_s=15) == []
    for path in leftovers(process.pid):  # nobody was left to remove them
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_server_that_hangs_is_killed_and_its_stubs_ended(repository: Path) -> None:
    before = leftovers(os.getpid())  # of the servers that serve the whole run
    with TritonServer(server_options(repository)) as server:
        server.wait_until_ready()
        os.kill(server.process.pid, signal.SIGSTOP)
        started = time.monotonic()
        assert server.stop() == 128 + signal.SIGKILL
        assert time.monotonic() - started < 10.5
    assert processes_of(repository) == []
    assert leftovers(os.getpid()) == before


def test_it_listens_on_loopback_only(repository: Path) -> None:
    with TritonServer(server_options(repository)) as server:
        server.wait_until_ready()
        for port in server.options.triton_ports.values():
            wait_for_port("127.0.0.1", port)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", port), timeout=5)


def wait_for_port(host: str, port: int) -> None:
    """Triton opens the port of its metrics last, a moment after it is ready."""
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((host, port), timeout=5).close()
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_outside_loopback_models_cannot_be_loaded_without_the_key(repository: Path) -> None:
    """Whoever may load a model may run code here: Triton takes a model.py with the request."""
    options = replace(server_options(repository), host="0.0.0.0")
    with TritonServer(options) as server:
        server.wait_until_ready()
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{options.grpc_port}")
        for forbidden in (
            lambda: client.unload_model("pipeline"),
            lambda: client.load_model("pipeline"),
            client.get_system_shared_memory_status,
            client.get_trace_settings,
            client.get_log_settings,
        ):
            with pytest.raises(tritonclient.utils.InferenceServerException, match="This protocol is restricted"):
                forbidden()
        client.close()
        check_locked_over_http(options.http_port)


def test_a_web_page_cannot_load_models_on_loopback(server: TritonServer) -> None:
    """A browser on this machine would send what any page asks for, but it does not know the key."""
    check_locked_over_http(server.options.http_port)


def check_locked_over_http(port: int) -> None:
    for path in ("repository/models/pipeline/unload", "repository/index", "systemsharedmemory/region/x/register"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/{path}", data=b"{}", timeout=10)


def test_a_signal_while_it_stops_after_a_failure_changes_nothing(repository: Path) -> None:
    (repository / "postprocess" / "1" / "labels.txt").write_text("one\n")
    log = repository.parent / "log"
    with popen(repository, "--log", str(log)) as process:
        deadline = time.monotonic() + 30
        while not (log.is_file() and "failed to load all models" in log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # now it stops Triton, which takes seconds
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "model postprocess cannot be loaded: " in output
    assert processes_of(repository) == []
    assert leftovers(process.pid) == []


def test_arguments_after_two_dashes_go_to_triton(repository: Path) -> None:
    outcome = run(repository, "--", "--no-such-option")
    assert outcome.returncode == 1
    assert "no-such-option" in outcome.stderr
    assert "Triton ended with status 1 before it was ready" in outcome.stderr


def test_the_cause_of_an_early_end_is_shown_from_the_log(repository: Path) -> None:
    log = repository.parent / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = taken.getsockname()[1]
        outcome = run(repository, "--log", str(log), "--", f"--grpc-port={taken_port}")  # past our own check
    assert outcome.returncode == 1
    assert f"Triton ended with status 1 before it was ready; the end of its log {log}:" in outcome.stderr
    assert f"Socket '127.0.0.1:{taken_port}' already in use" in outcome.stderr


# What it refuses, and what it then says


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http-port=70000"], "argument --http-port: expected a number from 1 to 65535, got 70000"),
        (["--http-port=0"], "argument --http-port: expected a number from 1 to 65535, got 0"),
        (["--host=::1"], "argument --host: expected an IPv4 address such as 0.0.0.0, got ::1"),
        (["--host=localhost"], "argument --host: expected an IPv4 address such as 0.0.0.0, got localhost"),
    ],
    ids=str,
)
def test_wrong_usage_is_status_2(repository: Path, arguments: list[str], message: str) -> None:
    outcome = run(repository, *arguments)
    assert outcome.returncode == 2
    assert message in outcome.stderr


def test_an_address_of_another_machine(repository: Path) -> None:
    outcome = run(repository, "--host=192.0.2.1")  # reserved for documentation, RFC 5737
    assert outcome.returncode == 1
    assert "expected to bind to 192.0.2.1, got: Cannot assign requested address" in outcome.stderr


def test_one_port_given_twice(repository: Path) -> None:
    outcome = run(repository, "--http-port=18123", "--grpc-port=18123")
    assert outcome.returncode == 1
    assert "ports: expected four different ones, got " in outcome.stderr


@pytest.mark.parametrize("name", ["with space", "übung"])
def test_a_path_that_triton_cannot_take(repository: Path, name: str) -> None:
    odd = repository.parent / name
    shutil.copytree(repository, odd)
    outcome = run(odd)
    assert outcome.returncode == 1
    assert "model repository: expected a path of ASCII letters" in outcome.stderr


def test_a_port_that_is_taken(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run(repository, f"--http-port={port}")
    assert outcome.returncode == 1
    assert f"port {port} (http): expected it to be free on 127.0.0.1, got one in use" in outcome.stderr
    assert "give --http-port another number" in outcome.stderr


def test_every_problem_is_reported_at_once(repository: Path) -> None:
    (repository / "efficientnet_lite0" / "1" / "model.onnx").unlink()
    (repository / "preprocess" / "1" / "model.py").unlink()
    shutil.rmtree(repository / "pipeline" / "1")
    (repository / "postprocess" / "config.pbtxt").write_text("name: postprocess")
    shutil.copytree(repository / "preprocess_frames", repository / "preprocess_bak")
    (repository / "notes").mkdir()
    outcome = run(repository)
    assert outcome.returncode == 1
    for expected in (
        "efficientnet_lite0/1/model.onnx: file: expected the model's file, got none: run `make export repository`",
        "preprocess/1/model.py: file: expected the model's file, got none",
        "repository/pipeline: version: expected a folder such as 1/, got none",
        "postprocess/config.pbtxt: syntax: expected a Triton model configuration, got: ",
        "preprocess_bak/config.pbtxt: name: expected 'preprocess_bak', as its folder's, got 'preprocess_frames'",
        "notes/config.pbtxt: file: expected a model's configuration, got none: move ",
    ):
        assert expected in outcome.stderr


def test_what_triton_would_take_and_misunderstand_is_shown(repository: Path) -> None:
    path = repository / "pipeline" / "config.pbtxt"
    path.write_text(path.read_text().replace('name: "raw_image"', 'name: "raw_image" allow_ragged_batch: true', 1))
    outcome = run(repository, "--", "--no-such-option")  # so that Triton ends at once
    assert f"warning: {path}: input 'raw_image'.allow_ragged_batch: expected none on an ensemble" in outcome.stderr


def test_a_variant_that_no_model_has_is_refused(repository: Path) -> None:
    """Triton would serve config.pbtxt of every model, and not say so."""
    outcome = run(repository, "--", "--model-config-name=onnxruntime_cudda")
    assert outcome.returncode == 1
    assert "--model-config-name: expected one of ['onnxruntime_cuda', 'onnxruntime_tensorrt'," in outcome.stderr
    assert "got onnxruntime_cudda: leave it out" in outcome.stderr


def test_a_plan_that_is_not_built_is_named(repository: Path) -> None:
    outcome = run(repository, "--", "--model-config-name", "tensorrt_plan")
    assert outcome.returncode == 1
    assert re.search(
        r"/1/[0-9a-f]{16}\.plan: file: expected the model's file, got none: run .*build_plan\.sh", outcome.stderr
    )


def test_a_folder_without_models(tmp_path: Path) -> None:
    outcome = run(tmp_path)
    assert outcome.returncode == 1
    assert f"expected folders with a config.pbtxt in {tmp_path}, got none: run `make repository`" in outcome.stderr


def test_a_model_that_fails_to_load_is_shown_with_its_own_error(repository: Path) -> None:
    (repository / "efficientnet_lite0" / "1" / "model.onnx").write_bytes(b"not ONNX")
    outcome = run(repository, "--log", str(repository.parent / "log"))
    assert outcome.returncode == 1
    assert "model efficientnet_lite0 cannot be loaded: " in outcome.stderr
    assert "Protobuf parsing failed" in outcome.stderr
    assert "pipeline" not in outcome.stderr  # the ensembles only fail with it


def test_a_start_that_takes_too_long_is_given_up(repository: Path) -> None:
    model = repository / "postprocess" / "1" / "model.py"
    model.write_text("import time\ntime.sleep(60)\n" + model.read_text())
    started = time.monotonic()
    outcome = run(repository, "--ready-timeout-s=3", "--log", str(repository.parent / "log"))
    assert time.monotonic() - started < 20
    assert outcome.returncode == 1
    assert "Triton: expected it to be ready within 3 s, it was not: give --ready-timeout-s more" in outcome.stderr


def test_a_read_only_repository_is_served(repository: Path) -> None:
    if (
        os.geteuid() == 0
        and subprocess.run(["mount", "--bind", repository, repository], capture_output=True).returncode
    ):
        pytest.skip("needs the right to mount, or a user other than root")
    try:
        if os.geteuid() == 0:
            subprocess.run(["mount", "-o", "remount,bind,ro", repository], check=True)
        else:
            subprocess.run(["chmod", "-R", "a-w", repository], check=True)
        with pytest.raises(OSError, match=r"Read-only|Permission"):
            (repository / "x").write_text("")
        with TritonServer(server_options(repository)) as server:
            server.wait_until_ready()
    finally:
        subprocess.run(["umount" if os.geteuid() == 0 else "true", repository], check=True)
        subprocess.run(["chmod", "-R", "u+w", repository], check=True)


@pytest.fixture
def wheel(tmp_path: Path) -> Installation:
    """A copy of the wheel's Triton, to be damaged."""
    original = find_installation()
    if not original.is_wheel:
        pytest.skip("needs the Triton of the wheel nvidia-pytriton")
    copy = tmp_path / "site-packages" / "pytriton" / "tritonserver"
    shutil.copytree(original.root, copy)
    (tmp_path / "site-packages" / "nvidia_pytriton.libs").symlink_to(original.library_folders[-1])
    return Installation(copy / "bin" / "tritonserver")


def test_a_sound_installation_has_no_problem(wheel: Installation) -> None:
    assert [*checks.check_numpy(wheel), *checks.check_stub(wheel), *checks.check_shared_memory()] == []


def test_a_missing_libpython(wheel: Installation, repository: Path) -> None:
    """The stub asks the loader for a libpython that is nowhere; as on a machine without the right one."""
    content = wheel.stub.read_bytes()
    name = re.search(rb"libpython3\.\d+\.so\.1\.0", content)
    assert name is not None
    wheel.stub.write_bytes(content.replace(name[0], name[0].replace(b"libpython3", b"libpythonX")))
    outcome = run(repository, "--tritonserver", str(wheel.tritonserver))
    assert outcome.returncode == 1
    assert "libpython: expected libpython3." in outcome.stderr
    assert "cannot open shared object file" in outcome.stderr
    assert "apt-get install libpython3." in outcome.stderr


def test_a_python_without_a_stub(wheel: Installation) -> None:
    wheel.stub.unlink()
    (problem,) = checks.check_stub(wheel)
    assert "expected a stub for Python 3." in problem


def test_numpy_2(repository: Path, tmp_path: Path) -> None:
    """A numpy 2 that comes first on the path, as where somebody upgraded it."""
    metadata = tmp_path / "path" / "numpy-2.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.1.0\n")
    outcome = run(repository, env={**os.environ, "PYTHONPATH": str(metadata.parent.parent)})
    assert outcome.returncode == 1
    assert "numpy: expected numpy < 2, with which this Triton's Python backend was built, got 2.1.0" in outcome.stderr
    assert "-m pip install 'numpy<2'" in outcome.stderr


def test_too_little_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "MIN_SHARED_MEMORY_BYTES", 1 << 60)
    (problem,) = checks.check_shared_memory()
    assert "--shm-size=1g" in problem
    monkeypatch.setattr(checks, "SHARED_MEMORY", tmp_path / "none")
    (problem,) = checks.check_shared_memory()
    assert "mount a tmpfs there" in problem


def test_too_low_a_limit_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (8 << 20, 8 << 20))
    (problem,) = checks.check_stack()
    assert "expected a hard limit of at least 256 MB" in problem
    assert "got 8 MB: raise it, in Docker by --ulimit stack=268435456" in problem


def test_version_folders_that_were_never_filled(repository: Path) -> None:
    for version in repository.glob("*/1"):
        shutil.rmtree(version)
    outcome = run(repository)
    assert outcome.returncode == 1
    assert outcome.stderr.count("run `make export repository`") == 1


def test_a_path_that_is_no_tritonserver(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="--tritonserver: expected an executable file, got "):
        find_installation(tmp_path)


@pytest.mark.parametrize("listed", [True, False], ids=["newer release", "older release"])
def test_grpc_handler_threads_are_set_where_the_release_takes_them(listed: bool, tmp_path: Path) -> None:
    """The wheel's release does not: a script stands for the --help of a container's."""
    script = tmp_path / "tritonserver" / "bin" / "tritonserver"
    script.parent.mkdir(parents=True)
    option = "--grpc-infer-thread-count <integer>" if listed else "--grpc-infer-allocation-pool-size <integer>"
    script.write_text(f"#!/bin/sh\necho 'Usage: tritonserver [options]' >&2\necho '  {option}' >&2\nexit 1\n")
    script.chmod(0o755)
    words = command_line(server_options(tmp_path), Installation(script), tmp_path, "prefix")
    found = [word for word in words if word.startswith("--grpc-infer-thread-count=")]
    assert len(found) == listed
    assert all(2 <= int(word.partition("=")[2]) <= 16 for word in found)
