"""`python -m server deploy`, `rollback` and `status`, for the server that runs here."""

import argparse
import http.client
import sys
from pathlib import Path

from export.conversion import MIN_AGREEMENT
from export.errors import ExportError

from ..errors import ServerError
from ..options import ServerOptions
from ..running import RunningServer, find_server
from ..signals import StoppedBySignal, stop_on_signals
from .deployment import Deployment
from .fitting import check_variant
from .golden import read_golden
from .layout import CANARY_SERVICE, SERVICE, Layout, find_layout
from .locking import locked
from .status import as_table
from .triton import Triton

EXIT_FAILED = 1


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    stop_on_signals()
    try:
        options.run(options)
    except (ServerError, ExportError) as error:
        return failed(options.command, str(error))
    except (OSError, http.client.HTTPException) as error:
        return failed(options.command, f"expected the server and the repository to be there, got: {error!r}")
    except StoppedBySignal as stopped:
        failed(options.command, str(stopped))
        return 128 + stopped.number
    return 0


def failed(command: str, reason: str) -> int:
    print(f"{command} failed: {reason}", file=sys.stderr)
    return EXIT_FAILED


def run_deploy(options: argparse.Namespace) -> None:
    layout, server = find_layout(options.repository), find_server(options.repository)
    with locked(options.repository):
        check_variant(layout, server.variant)
        deployment = deployment_of(options, layout, server)
        if options.source.isdecimal():
            number = int(options.source)
            check_canary_is_free(layout, number)
            deployment.deploy_version(number)
        else:
            check_canary_is_free(layout, None)
            number = deployment.deploy_export(Path(options.source))
        if options.canary:
            say(f"version {number}: stays in `{CANARY_SERVICE}`; `deploy {number}` has `{SERVICE}` take it, and")
            say("`rollback --canary` drops it")
        else:
            deployment.switch_to(number)
            say(f"version {number} serves; {kept(layout)}")


def run_rollback(options: argparse.Namespace) -> None:
    layout, server = find_layout(options.repository), find_server(options.repository)
    with locked(options.repository):
        deployment = deployment_of(options, layout, server)
        if options.canary:
            if not (layout.canary_folder.exists() or layout.canary_service_folder.exists()):
                raise ServerError(f"{options.repository}: expected a canary, got none")
            deployment.drop_canary()
            say(f"the canary is gone; version {layout.served} serves as before")
            return
        older = [number for number in layout.versions if number < layout.served]
        if not older:
            raise ServerError(
                f"{layout.folder}: expected an older version, got {layout.served} alone: a retired one comes back by "
                "`deploy NUMBER`"
            )
        deployment.switch_to(older[-1])
        say(f"version {older[-1]} serves; {kept(layout)}")


def run_status(options: argparse.Namespace) -> None:
    layout, server = find_layout(options.repository), find_server(options.repository)
    triton = Triton(server.client)
    is_ready = triton.states(SERVICE) and triton.states(layout.classifier).get(layout.served) == "READY"
    print(f"{layout.classifier} in {options.repository}: {'ready' if is_ready else 'not ready'} at {server.http_url}")
    print(as_table(layout, {model: triton.states(model) for model in (layout.classifier, layout.canary)}))
    if not is_ready:
        raise ServerError(f"version {layout.served}: expected it to serve, Triton has it not READY")


def check_canary_is_free(layout: Layout, number: int | None) -> None:
    """Raise ServerError where there is a canary, of another version than `number`."""
    if layout.canary_version not in (None, number) or (layout.canary_service_folder.exists() and number is None):
        raise ServerError(
            f"canary: expected none, got version {layout.canary_version}: `python -m server deploy "
            f"{layout.canary_version}` has it serve, `rollback --canary` drops it"
        )


def deployment_of(options: argparse.Namespace, layout: Layout, server: RunningServer) -> Deployment:
    return Deployment(
        layout=layout,
        triton=Triton(server.client),
        golden=read_golden(options.golden) if options.golden else [],
        min_agreement=options.min_agreement,
        say=say,
    )


def kept(layout: Layout) -> str:
    """What is left on the disk besides the version that serves."""
    older = [str(number) for number in layout.versions if number != layout.served]
    retired = [f"retired-{number}" for number in layout.retired]
    return f"kept in {layout.folder}: {', '.join([*older, *retired]) or 'no other'}"


def say(line: str) -> None:
    print(line, flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m server", description=__doc__, epilog="Exit status: 0; 1 failed, and the old version serves."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    deploy = commands.add_parser("deploy", help="put another version in place, checked, without losing a request")
    deploy.add_argument("source", metavar="DIR|VERSION", help="what `python -m export model` wrote, or a number")
    deploy.add_argument("--canary", action="store_true", help=f"only serve it beside, as `{CANARY_SERVICE}`")
    rollback = commands.add_parser("rollback", help="go back to the version before, and retire the one that serves")
    rollback.add_argument("--canary", action="store_true", help="drop the canary instead")
    status = commands.add_parser("status", help="the versions in the repository, and which one serves")
    for command, run in ((deploy, run_deploy), (rollback, run_rollback), (status, run_status)):
        command.set_defaults(run=run)
        command.add_argument(
            "--model-repository", type=Path, default=ServerOptions().repository, metavar="DIR", dest="repository"
        )
    for command in (deploy, rollback):
        add_golden_options(command)
    return parser.parse_args(arguments)


def add_golden_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--golden",
        type=Path,
        metavar="FOLDER",
        help="images to check with: FOLDER/LABEL/file, where the top-1 must be that label or class id; or FOLDER/file, "
        "where that of the version that serves must be kept",
    )
    command.add_argument(
        "--min-agreement",
        type=share,
        default=MIN_AGREEMENT,
        metavar="SHARE",
        help="of images without labels that must keep their top-1 (default: %(default)s)",
    )


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text}")
    return value
