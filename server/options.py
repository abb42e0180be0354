"""What a server is started with."""

import socket
from dataclasses import dataclass
from pathlib import Path

from .installation import ROOT


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The defaults are those of `python -m server`."""

    repository: Path = ROOT / "model_repository"
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    ready_timeout_s: float = 120
    log: Path | None = None  # Triton's log; None for the console
    triton_arguments: tuple[str, ...] = ()  # handed to tritonserver as they are

    @property
    def ports(self) -> dict[str, int]:
        return {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}

    @property
    def client_host(self) -> str:
        """Where a client on this machine finds the server."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)


def port_is_free(host: str, port: int) -> bool:
    """Whether a server can bind to `port` on `host` now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Triton: a port just closed is free
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(options: ServerOptions) -> dict[str, int]:
    """The ports of `options`, each that is in use replaced by a free one."""
    return {
        name: port if port_is_free(options.host, port) else _any_free_port(options.host)
        for name, port in options.ports.items()
    }


def _any_free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
