"""What a server is started with."""

import argparse
import contextlib
import ipaddress
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from .installation import ROOT


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The defaults are those of `python -m server`."""

    repository: Path = ROOT / "model_repository"
    host: str = "127.0.0.1"  # an IPv4 address
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    health_port: int = 8003  # of the watchdog
    ready_timeout_s: float = 120
    drain_timeout_s: float = 10  # for load balancers to send requests elsewhere, after SIGTERM
    log: Path | None = None  # Triton's log; None for the console
    triton_arguments: tuple[str, ...] = ()  # handed to tritonserver as they are

    @property
    def triton_ports(self) -> dict[str, int]:
        return {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}

    @property
    def ports(self) -> dict[str, int]:
        return {**self.triton_ports, "health": self.health_port}

    @property
    def variant(self) -> str | None:
        """The NAME of --model-config-name=NAME: Triton takes configs/NAME.pbtxt of each model that has one."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--model-config-name", nargs="?")
        found, _ = parser.parse_known_args(self.triton_arguments)
        return found.model_config_name or None

    @property
    def health_url(self) -> str:
        return f"http://{self.client_host}:{self.health_port}"

    @property
    def client_host(self) -> str:
        """Where a client on this machine finds the server."""
        return "127.0.0.1" if self.host == "0.0.0.0" else self.host

    @property
    def grpc_url(self) -> str:
        return f"grpc://{self.client_host}:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        return f"http://{self.client_host}:{self.http_port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return ipaddress.IPv4Address(self.host).is_loopback


def bind_error(host: str, port: int) -> OSError | None:
    """Why a server cannot bind to `port` on `host` now; None where it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Triton: a port just closed is free
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def with_free_ports(options: ServerOptions) -> ServerOptions:
    """Replace each port of `options` that is in use, or 0, by a free one."""
    with contextlib.ExitStack() as stack:  # each stays bound until all are chosen, so that no two are the same
        http, grpc, metrics, health = (_bind(stack, options.host, port) for port in options.ports.values())
    return replace(options, http_port=http, grpc_port=grpc, metrics_port=metrics, health_port=health)


def _bind(stack: contextlib.ExitStack, host: str, wanted: int) -> int:
    probe = stack.enter_context(socket.socket())
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, wanted))
    except OSError:
        probe.bind((host, 0))
    probe.listen()  # else SO_REUSEADDR would let the next one have the same port
    port: int = probe.getsockname()[1]
    return port
