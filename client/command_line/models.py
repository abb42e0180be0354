"""`models`: list the models of a server, load one, unload one."""

import argparse
import sys
from typing import Any

from ..administration import load_model, read_status, unload_model
from ..errors import ClassificationError, RefusedError
from ..pipeline import PipelineClient
from .columns import columns
from .hints import with_hint
from .options import EXIT_FAILED, connection_options, open_client
from .status import indented, index_notes, state_of

ADMIN_EPILOG = (
    "Over HTTP a server started by `python -m server` wants a key: --header triton-admin-key=KEY. Over gRPC it wants "
    "none where it listens to its own machine only, else --header triton-grpc-protocol-triton-admin-key=KEY."
)


def add_command(commands: Any) -> None:
    parser = commands.add_parser("models", help="list, load or unload models", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|load|unload")
    described = {"parents": [connection_options()], "epilog": ADMIN_EPILOG}
    actions.add_parser("list", help="name, version, state and reason of each", **described).set_defaults(run=run_list)
    load = actions.add_parser("load", help="load one, or load it again where its files have changed", **described)
    unload = actions.add_parser("unload", help="unload one, when its requests are answered", **described)
    for action, run in ((load, run_load), (unload, run_unload)):
        action.add_argument("name", metavar="NAME")
        action.set_defaults(run=run)
    unload.add_argument("--force", action="store_true", help="also where it takes along the ensembles that need it")


def run_list(options: argparse.Namespace) -> int:
    return _administer(options, _list)


def run_load(options: argparse.Namespace) -> int:
    return _administer(options, _load)


def run_unload(options: argparse.Namespace) -> int:
    return _administer(options, _unload)


def _administer(options: argparse.Namespace, action: Any) -> int:
    with open_client(options, max_retries=0) as client:
        try:
            action(client, options)
        except ClassificationError as error:
            print(with_hint(error, options.url), file=sys.stderr)
            return EXIT_FAILED
    return 0


def _list(client: PipelineClient, options: argparse.Namespace) -> None:
    status = read_status(client)
    rows = [(indented(one), one.version or "-", state_of(one), one.reason_line) for one in status.models]
    print(columns([("model", "version", "state", "reason"), *rows], "<><<"))
    for line in index_notes(status):
        print(line, file=sys.stderr)


def _load(client: PipelineClient, options: argparse.Namespace) -> None:
    load_model(client, options.name)
    print(f"{options.name}: loaded")


def _unload(client: PipelineClient, options: argparse.Namespace) -> None:
    try:
        gone = unload_model(client, options.name, options.force)
    except RefusedError as error:
        raise RefusedError(error.step, error.code, f"{error.detail}; --force unloads both") from error
    print(f"{' and '.join(gone)}: unloaded")
