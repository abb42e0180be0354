"""What every command that talks to a server is told, and the client that comes of it."""

import argparse
from pathlib import Path

from ..connection import DEFAULT_URL, Tls
from ..pipeline import PipelineClient

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


class UsageError(Exception):
    """The command was called wrongly: exit status 2."""


def connection_options() -> argparse.ArgumentParser:
    """The parent of each command's parser."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("the way to the server")
    group.add_argument(
        "--url",
        default=DEFAULT_URL,
        help="grpc://HOST:PORT or http://HOST:PORT; grpcs and https with TLS (default: %(default)s)",
    )
    group.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="sent with each request")
    for name, what in (
        ("authority", "trust the certificates that it signed (default: the system's)"),
        ("certificate", "our own, for mutual TLS"),
        ("key", "our own certificate's"),
    ):
        group.add_argument(f"--tls-{name}", type=Path, metavar="FILE.pem", help=what)
    group.add_argument(
        "--timeout-s", type=positive, default=30, metavar="S", help="for each request (default: %(default)s)"
    )
    return parser


def open_client(
    options: argparse.Namespace, max_retries: int | None, kind: type[PipelineClient] = PipelineClient
) -> PipelineClient:
    """Raises UsageError where the options make no client."""
    try:
        return kind(
            options.url,
            timeout_s=options.timeout_s,
            max_retries=max_retries,
            tls=Tls(options.tls_authority, options.tls_certificate, options.tls_key),
            headers=dict(map(_split_header, options.header)),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _split_header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--header: expected NAME=VALUE, got {text}")
    return name, value


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value
