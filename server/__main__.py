"""`python -m server`: serve a model repository until a signal says to stop, whatever dies meanwhile."""

import argparse
import ipaddress
import logging
import sys
import time
from pathlib import Path

from .errors import ServerError
from .options import ServerOptions
from .signals import StoppedBySignal, signals_blocked, stop_on_signals

EXIT_FAILED = 1
COMMANDS = ("deploy", "rollback", "status")  # of server/deploy, for a server that runs


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] and arguments[0] in COMMANDS:
        from .deploy.command_line import main as administer

        return administer(arguments)
    options, tritonserver = parse(arguments)
    stop_on_signals()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    try:
        return serve(options, tritonserver)
    except ServerError as error:
        print(f"\ncannot serve {options.repository}:\n{error}", file=sys.stderr)
        return EXIT_FAILED
    except StoppedBySignal as stopped:
        print(f"{stopped} before the server was ready", file=sys.stderr)
        return 128 + stopped.number


def serve(options: ServerOptions, tritonserver: Path | None) -> int:
    """Serve until a signal, print the endpoints when all is ready, and return Triton's exit status at its end."""
    with signals_blocked():  # numpy's import turns an exception in it into another
        from .watchdog.supervisor import supervise

    started = time.monotonic()
    return supervise(
        options,
        tritonserver,
        while_loading=lambda: show_findings(options),
        on_ready=lambda: print(endpoints(options, time.monotonic() - started), flush=True),
    )


def show_findings(options: ServerOptions) -> None:
    """While Triton loads the models, say what it would take and then do something else with."""
    with signals_blocked():
        from export.check.linter import find_cheap

        for finding in find_cheap(options.repository, options.variant):
            print(f"warning: {finding}", file=sys.stderr, flush=True)


def endpoints(options: ServerOptions, seconds: float) -> str:
    return (
        f"ready after {seconds:.1f} s, serving {options.repository}\n"
        f"  gRPC     {options.grpc_url}\n"
        f"  HTTP     {options.http_url}\n"
        f"  metrics  http://{options.client_host}:{options.metrics_port}/metrics\n"
        f"  health   {options.health_url}/ready and /live, /metrics of the watchdog\n"
        "Ctrl-C stops it."
    )


def parse(arguments: list[str] | None) -> tuple[ServerOptions, Path | None]:
    defaults = ServerOptions()
    parser = argparse.ArgumentParser(
        prog="python -m server",
        description="Serve a model repository with the tritonserver of NVIDIA's container or of PyPI.",
        epilog="What follows -- goes to tritonserver as it is, for instance: -- --log-info=true. While it serves, "
        "`python -m server deploy`, `rollback` and `status` change the version of the network; each has a --help.",
    )
    parser.add_argument("--model-repository", type=Path, default=defaults.repository, metavar="DIR", dest="repository")
    parser.add_argument("--tritonserver", type=Path, metavar="PATH", help="default: the container's, else the wheel's")
    parser.add_argument(
        "--host",
        type=ipv4_address,
        default=defaults.host,
        metavar="ADDRESS",
        help="IPv4 address to bind to (default: %(default)s, this machine only)",
    )
    for name, port in defaults.ports.items():
        parser.add_argument(f"--{name}-port", type=port_number, default=port, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--ready-timeout-s", type=positive, default=defaults.ready_timeout_s, metavar="S", help="default: %(default)s"
    )
    parser.add_argument(
        "--drain-timeout-s",
        type=positive,
        default=defaults.drain_timeout_s,
        metavar="S",
        help="after SIGTERM go on serving until nobody asks any more, at most so long (default: %(default)s)",
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="write Triton's log there (default: the console)")
    parser.add_argument("triton_arguments", nargs="*", metavar="-- ARGUMENT", help="for tritonserver")
    values = vars(parser.parse_args(arguments))
    tritonserver = values.pop("tritonserver")
    values["triton_arguments"] = tuple(values["triton_arguments"])
    return ServerOptions(**values), tritonserver


def ipv4_address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected an IPv4 address such as 0.0.0.0, got {text}") from error


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def port_number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 65535, got {text}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
