"""Where the server is, and how it is spoken to: URL, certificates, headers, compression."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .errors import ClassificationError, ClosedError, ServiceError, refused_error, service_kind

DEFAULT_URL = "grpc://127.0.0.1:8001"
DEFAULT_PORTS = {"grpc": 8001, "grpcs": 8001, "http": 8000, "https": 443}
Compression: TypeAlias = Literal["gzip", "deflate"]

_URL = re.compile(
    r"(?P<scheme>grpcs?|https?)://(?P<host>[\w.-]+|\[[\da-fA-F:.]+\])(:(?P<port>\d{1,5}))?(?P<path>(/[\w.~%-]+)*)/?",
    re.ASCII,
)
_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[ -~]*")

# Triton (24.10) takes pings only every 5 minutes, and closes the connection after two that come earlier.
KEEPALIVE_TIME_MS = 330_000
# Also the TCP_USER_TIMEOUT, with which the system gives a connection up whose other end no longer acknowledges.
KEEPALIVE_TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class Tls:
    """Certificates as PEM files: the authority to trust (else the system's), for mutual TLS our own and its key."""

    authority: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("tls: expected a certificate and its key, got one without the other")
        for path in self.paths:
            if path is not None and not Path(path).is_file():
                raise ValueError(f"tls: expected a PEM file, got {path}, which is none")

    @property
    def paths(self) -> tuple[str | PathLike[str] | None, ...]:
        return self.authority, self.certificate, self.key


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What both clients, over both protocols, are told about the way to the server; ValueError where it is wrong.

    `url` is grpc://HOST[:PORT], http://HOST[:PORT][/PATH], or grpcs and https with TLS. `headers` go along with each
    request, for restricted protocols and proxies.
    """

    url: str = DEFAULT_URL
    tls: Tls = field(default_factory=Tls)
    headers: Mapping[str, str] = field(default_factory=dict)
    compression: Compression | None = None

    def __post_init__(self) -> None:
        match = _URL.fullmatch(self.url)
        if match is None or int(match["port"] or 1) not in range(1, 65536) or (match["path"] and self.is_grpc):
            expected = "grpc://HOST:PORT, http://HOST:PORT, or grpcs or https"
            raise ValueError(f"url: expected {expected}, got {self.url}")
        if self.compression not in (None, "gzip", "deflate"):
            raise ValueError(f"compression: expected gzip or deflate, got {self.compression!r}")
        if self.tls != Tls() and not self.is_secure:
            raise ValueError(f"tls: expected a URL with grpcs or https, got {self.url}")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"headers: expected a name and a value in ASCII, got {name!r}: {value!r}")

    @property
    def is_grpc(self) -> bool:
        return self.url.startswith("grpc")

    @property
    def is_secure(self) -> bool:
        return self.url.startswith(("grpcs:", "https:"))

    @property
    def address(self) -> str:
        """HOST:PORT."""
        match = _URL.fullmatch(self.url)
        assert match is not None  # checked when this was made
        return f"{match['host']}:{match['port'] or DEFAULT_PORTS[match['scheme']]}"

    @property
    def base_url(self) -> str:
        """The start of every URL over HTTP."""
        return f"{self.url.partition(':')[0]}://{self.address}{self.base_path}"

    @property
    def base_path(self) -> str:
        match = _URL.fullmatch(self.url)
        assert match is not None
        return match["path"]

    def failure(self, got: str, otherwise: type[ServiceError] = ServiceError) -> ServiceError:
        """The error where the server, or the way to it, failed: of the kind that `got` tells of, else `otherwise`."""
        got = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in got)
        host = self.address.rpartition(":")[0]
        kind = service_kind(got.replace(host, ""), otherwise)  # a host's name may hold any word
        return kind(f"{self.url}: expected the answer of a Triton server that has `pipeline`, got: {got}")

    def error_from_text(self, text: str) -> ClassificationError:
        """The error where the server says that the request is at fault, or itself."""
        return refused_error(text) or self.failure(text)

    def closed(self) -> ClosedError:
        """The error of a call on a client that was closed."""
        return ClosedError(f"{self.url}: expected an open client, got a call after its end")

    def channel_options(self) -> list[tuple[str, Any]]:
        """gRPC's: any size of message, quick reconnection, and keepalive as Triton allows it."""
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),  # gRPC's own 2 minutes would miss a server that is back
            ("grpc.min_reconnect_backoff_ms", 10_000),  # how long one attempt may take, over a slow network too
            ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 0),
        ]
        if self.address.startswith(("127.", "localhost:", "[::1]:")):
            options.append(("grpc.enable_http_proxy", 0))  # gRPC would take https_proxy even for this machine
        return options

    def metadata(self) -> list[tuple[str, str | bytes]]:
        """gRPC's form of the headers, which are bytes where a name ends in -bin."""
        lowered = [(name.lower(), value) for name, value in self.headers.items()]
        return [(name, value.encode() if name.endswith("-bin") else value) for name, value in lowered]

    def channel_credentials(self) -> Any:
        """gRPC's form of the certificates."""
        import grpc

        self.ssl_context()  # says where a file is no certificate; gRPC would only fail to connect
        authority, certificate, key = (None if path is None else Path(path).read_bytes() for path in self.tls.paths)
        return grpc.ssl_channel_credentials(authority, key, certificate)

    def ssl_context(self) -> ssl.SSLContext | None:
        """The form that HTTP takes; None without TLS. Raises ValueError where a file is no certificate or key."""
        if not self.is_secure:
            return None
        authority, certificate, key = self.tls.paths
        try:
            context = ssl.create_default_context(cafile=authority)
            if certificate is not None:
                context.load_cert_chain(certificate, key, password="")  # without one it would ask at the terminal
        except ssl.SSLError as error:
            raise ValueError(f"tls: expected PEM files with a certificate and its key, got: {error}") from error
        return context
