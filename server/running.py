"""Which server runs here for a repository: its launcher notes that down, with the key that Triton wants for loading."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import ServerError
from .options import ServerOptions
from .triton_client import ADMIN_KEY_HEADER, TritonClient

FILE = "server.json"


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """What stands in server.json, in the launcher's temporary folder, which goes when the server is stopped."""

    pid: int  # of the launcher
    repository: str  # resolved
    http_url: str
    grpc_url: str
    metrics_port: int
    variant: str | None  # of --model-config-name
    admin_header: str
    admin_key: str

    @property
    def client(self) -> TritonClient:
        http, grpc = urlsplit(self.http_url), urlsplit(self.grpc_url)
        ports = int(http.port or 0), int(grpc.port or 0), self.metrics_port
        return TritonClient(str(http.hostname), *ports, self.admin_key)


def note_server(folder: Path, options: ServerOptions, admin_key: str) -> None:
    """Write server.json, which only this user can read."""
    server = RunningServer(
        pid=os.getpid(),
        repository=str(options.repository.resolve()),
        http_url=options.http_url,
        grpc_url=options.grpc_url,
        metrics_port=options.metrics_port,
        variant=options.variant,
        admin_header=ADMIN_KEY_HEADER,
        admin_key=admin_key,
    )
    descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(server), file)


def find_server(repository: Path) -> RunningServer:
    """The one server that `python -m server` runs for `repository`; raises ServerError where there is none, or two."""
    found = [server for server in running_servers() if server.repository == str(repository.resolve())]
    if len(found) == 1:
        return found[0]
    if found:
        urls = ", ".join(server.http_url for server in found)
        raise ServerError(f"server: expected one that serves {repository}, got {len(found)}: {urls}: stop the others")
    raise ServerError(
        f"server: expected one of `python -m server` that serves {repository} and is yours, got none: start it "
        "(make serve), or give --model-repository DIR"
    )


def running_servers() -> list[RunningServer]:
    """Those that answer; what launchers that were killed have left behind is passed over."""
    return [server for path in _notes() if (server := _read(path)) and server.client.is_live()]


def _notes() -> list[Path]:
    notes = sorted(Path(tempfile.gettempdir()).glob(f"triton-of-*/{FILE}"))
    return [path for path in notes if path.parent.stat().st_uid == os.getuid()]  # anyone may write to /tmp


def _read(path: Path) -> RunningServer | None:
    try:
        server = RunningServer(**json.loads(path.read_text("utf-8")))
        os.kill(server.pid, 0)
    except (OSError, ValueError, TypeError):  # of a launcher that has ended, or just being written
        return None
    return server
