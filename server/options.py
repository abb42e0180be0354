"""What a server is started with."""

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
        return "127.0.0.1" if self.host in ("0.0.0.0", "") else self.host
