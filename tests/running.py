"""Starting servers on free ports, and finding what one has left behind."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from server.options import ServerOptions, with_free_ports
from server.process import TritonServer


def server_options(repository: Path, *triton_arguments: str) -> ServerOptions:
    """Options on free ports, with Triton's log beside the repository."""
    return with_free_ports(
        ServerOptions(
            repository=repository,
            http_port=0,
            grpc_port=0,
            metrics_port=0,
            health_port=0,
            log=repository.parent / "triton.log",
            triton_arguments=triton_arguments,
        )
    )


@contextlib.contextmanager
def started(repository: Path, *triton_arguments: str) -> Iterator[TritonServer]:
    """A server that is ready; stopped, and looked after, on the way out."""
    with TritonServer(server_options(repository, *triton_arguments)) as server:
        server.wait_until_ready()
        yield server
    assert processes_of(repository) == []


def grpc_url(server: TritonServer) -> str:
    return server.options.grpc_url


def http_url(server: TritonServer) -> str:
    return server.options.http_url


@contextlib.contextmanager
def child(command: list[str], stop_within_s: float = 20, **options: Any) -> "Iterator[subprocess.Popen[str]]":
    """A program that is ended on the way out, even where an assertion fails."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(stop_within_s)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def processes_of(*paths: Path, within_s: float = 0) -> list[str]:
    """Command lines of the processes, tritonserver and stubs, in which one of `paths` stands; waits for their end at
    most `within_s`."""
    deadline = time.monotonic() + within_s
    while found := [line for line in triton_command_lines() if any(str(path) in line for path in paths)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return found


def triton_command_lines() -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if "tritonserver" in line or "triton_python_backend_stub" in line]


def triton_of(launcher_pid: int) -> int:
    """The process number of the Triton that a `python -m server` runs."""
    (found,) = (
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if parent_of(path) == launcher_pid and b"tritonserver" in (path / "cmdline").read_bytes()
    )
    return found


def parent_of(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return None


def leftovers(launcher_pid: int) -> list[Path]:
    """What the servers of a launcher keep in the temporary folder and in /dev/shm while they run."""
    folders = (Path(tempfile.gettempdir()), Path("/dev/shm"))
    return [path for folder in folders for path in folder.glob(f"triton-of-{launcher_pid}-*")]


def pids_of(server: TritonServer, model: str) -> list[int]:
    """The process numbers of the stubs that execute `model`, sorted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        line = b" ".join(words)
        is_stub = words[0].endswith(b"triton_python_backend_stub")
        if is_stub and f"{server.options.repository}/{model}/1/model.py".encode() in line:
            found.append(int(path.parent.name))
    return sorted(found)
