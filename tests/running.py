"""Starting servers on free ports, and finding what one has left behind."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from server.options import ServerOptions, free_ports
from server.process import TritonServer


def server_options(repository: Path, *triton_arguments: str) -> ServerOptions:
    """Options on free ports, with Triton's log beside the repository."""
    options = ServerOptions(
        repository=repository,
        http_port=18000,
        grpc_port=18001,
        metrics_port=18002,
        log=repository.parent / "triton.log",
        triton_arguments=triton_arguments,
    )
    ports = free_ports(options)
    return replace(options, http_port=ports["http"], grpc_port=ports["grpc"], metrics_port=ports["metrics"])


@contextlib.contextmanager
def started(repository: Path, *triton_arguments: str) -> Iterator[TritonServer]:
    """A server that is ready; stopped, and looked after, on the way out."""
    with TritonServer(server_options(repository, *triton_arguments)) as server:
        server.wait_until_ready()
        yield server
    assert processes_of(repository) == []


def grpc_url(server: TritonServer) -> str:
    return f"grpc://127.0.0.1:{server.options.grpc_port}"


def http_url(server: TritonServer) -> str:
    return f"http://127.0.0.1:{server.options.http_port}"


def processes_of(repository: Path, within_s: float = 0) -> list[str]:
    """Command lines of the processes that serve `repository`, tritonserver and stubs; waits for their end at most
    `within_s`."""
    deadline = time.monotonic() + within_s
    while (found := _processes_with(str(repository))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _processes_with(text: str) -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if text in line and ("tritonserver" in line or "triton_python_backend_stub" in line)]
