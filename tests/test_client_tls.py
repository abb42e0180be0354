"""TLS, plain and mutual: to the real Triton over gRPC, and over HTTP through a proxy that takes TLS off."""

import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from client import AccessError, ServiceError, Tls, UnavailableError
from server.process import TritonServer
from tests.fakes import KINDS, listening, open_client
from tests.running import grpc_url, http_url, started

SCHEMES = ["grpcs", "https"]


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, what it signed for the server at 127.0.0.1 and for a client, and another authority."""

    folder: Path

    def __getattr__(self, name: str) -> Path:
        return self.folder / f"{name}.pem"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(certificates.authority))
    trustme.CA().cert_pem.write_to_path(str(certificates.stranger))
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1") if name == "server" else authority.issue_cert("a@client.example")
        issued.private_key_pem.write_to_path(str(certificates.folder / f"{name}_key.pem"))
        issued.cert_chain_pems[0].write_to_path(str(certificates.folder / f"{name}.pem"))
    return certificates


@pytest.fixture(scope="module")
def urls(lite0: Path, pem: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server that asks for the client's certificate: over gRPC Triton itself, over HTTP through a proxy."""
    arguments = [
        "--grpc-use-ssl=true",
        "--grpc-use-ssl-mutual=true",
        f"--grpc-server-cert={pem.server}",
        f"--grpc-server-key={pem.server_key}",
        f"--grpc-root-cert={pem.authority}",
    ]
    repository = shutil.copytree(lite0, tmp_path_factory.mktemp("tls") / "repository")
    with started(repository, *arguments) as server, tls_proxy(server, pem) as port:
        yield {"grpcs": grpc_url(server).replace("grpc:", "grpcs:"), "https": f"https://127.0.0.1:{port}"}


@contextlib.contextmanager
def tls_proxy(server: TritonServer, pem: Certificates) -> Iterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pem.authority)
    context.load_cert_chain(pem.server, pem.server_key)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve(connection: socket.socket) -> None:
        target = ("127.0.0.1", server.options.http_port)
        with context.wrap_socket(connection, server_side=True) as ours, socket.create_connection(target) as theirs:
            threading.Thread(target=pump, args=[theirs, ours], daemon=True).start()
            pump(ours, theirs)

    with listening(serve) as port:
        yield port


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


def ours(pem: Certificates) -> Tls:
    return Tls(pem.authority, pem.client, pem.client_key)


def error_of(kind: str, url: str, tls: Tls | None = None) -> ServiceError:
    with (
        open_client(kind, url, tls=tls, timeout_s=10, max_retries=0) as client,
        pytest.raises(ServiceError, match=f"{url}: expected the answer of a Triton server.*got: .+") as caught,
    ):
        client.classify(b"x")
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
class TestTls:
    def test_both_sides_show_their_certificates(
        self, kind: str, scheme: str, urls: dict[str, str], pem: Certificates, photos: Path
    ) -> None:
        with open_client(kind, urls[scheme], tls=ours(pem), timeout_s=20) as client:
            results = client.classify([photos / "coffee.png"] * 9, top_k=1)
        assert [result.classes[0].label for result in results] == ["espresso"] * 9

    def test_without_our_certificate(self, kind: str, scheme: str, urls: dict[str, str], pem: Certificates) -> None:
        assert type(error_of(kind, urls[scheme], Tls(pem.authority))) in (AccessError, UnavailableError)

    def test_an_authority_that_is_not_known(
        self, kind: str, scheme: str, urls: dict[str, str], pem: Certificates
    ) -> None:
        """Neither the system's nor another is the server's."""
        for tls in (Tls(), Tls(pem.stranger, pem.client, pem.client_key)):
            error = error_of(kind, urls[scheme], tls)
            assert type(error) is AccessError
            assert "certificate verify failed" in str(error).lower().replace("_", " ")

    def test_a_certificate_of_another_host(
        self, kind: str, scheme: str, urls: dict[str, str], pem: Certificates
    ) -> None:
        assert type(error_of(kind, urls[scheme].replace("127.0.0.1", "localhost"), ours(pem))) is AccessError

    def test_tls_to_a_plain_port(self, kind: str, scheme: str, server: TritonServer, pem: Certificates) -> None:
        plain = grpc_url(server) if scheme == "grpcs" else http_url(server)
        error = error_of(kind, plain.replace("://", "s://"), ours(pem))
        assert type(error) in (AccessError, UnavailableError)

    def test_plain_to_a_port_with_tls(self, kind: str, scheme: str, urls: dict[str, str]) -> None:
        assert type(error_of(kind, urls[scheme].replace("s:", ":"))) is UnavailableError

    def test_files_that_are_no_certificates(self, kind: str, scheme: str, pem: Certificates, tmp_path: Path) -> None:
        garbage = tmp_path / "garbage.pem"
        garbage.write_text("no certificate")
        mixed_up = Tls(pem.authority, pem.client, pem.server_key)
        for tls in (Tls(garbage), Tls(pem.authority, garbage, pem.client_key), mixed_up):
            with pytest.raises(ValueError, match="tls: expected PEM files with a certificate and its key"):
                open_client(kind, f"{scheme}://127.0.0.1:1", tls=tls)

    def test_a_key_with_a_password_does_not_ask_at_the_terminal(
        self, kind: str, scheme: str, pem: Certificates, tmp_path: Path
    ) -> None:
        key = serialization.load_pem_private_key(pem.client_key.read_bytes(), None)
        locked = tmp_path / "locked.pem"
        locked.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
        )
        with pytest.raises(ValueError, match="tls: expected PEM files"):
            open_client(kind, f"{scheme}://127.0.0.1:1", tls=Tls(pem.authority, pem.client, locked))


def test_options_that_do_not_belong_together(pem: Certificates, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a certificate and its key, got one without the other"):
        Tls(certificate=pem.client)
    with pytest.raises(ValueError, match=r"expected a PEM file, got .*missing\.pem"):
        Tls(authority=tmp_path / "missing.pem")
    with pytest.raises(ValueError, match="expected a URL with grpcs or https"):
        open_client("blocking", "grpc://127.0.0.1:1", tls=Tls(pem.authority))
