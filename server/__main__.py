"""`python -m server`: serve a model repository until a signal says to stop."""

import argparse
import signal
import sys
import time
from pathlib import Path

from .errors import ServerError
from .options import ServerOptions
from .process import TritonServer
from .signals import StoppedBySignal, stop_on_signals

EXIT_FAILED = 1


def main(arguments: list[str] | None = None) -> int:
    options, tritonserver = parse(arguments)
    stop_on_signals()
    try:
        return serve(options, tritonserver)
    except ServerError as error:
        print(f"\ncannot serve {options.repository}:\n{error}", file=sys.stderr)
        return EXIT_FAILED
    except StoppedBySignal as stopped:
        print(f"{stopped} before the server was ready", file=sys.stderr)
        return 128 + stopped.number


def serve(options: ServerOptions, tritonserver: Path | None) -> int:
    """Start, wait for readiness, print the endpoints, and return Triton's exit status at its end."""
    started = time.monotonic()
    with TritonServer(options, tritonserver) as server:
        server.wait_until_ready()
        print(endpoints(options, time.monotonic() - started), flush=True)
        try:
            return server.wait()
        except StoppedBySignal as stopped:
            return server.stop(signal.SIGINT if stopped.number == signal.SIGINT else signal.SIGTERM)


def endpoints(options: ServerOptions, seconds: float) -> str:
    host = options.client_host
    return (
        f"ready after {seconds:.1f} s, serving {options.repository}\n"
        f"  gRPC     grpc://{host}:{options.grpc_port}\n"
        f"  HTTP     http://{host}:{options.http_port}\n"
        f"  metrics  http://{host}:{options.metrics_port}/metrics\n"
        "Ctrl-C stops it."
    )


def parse(arguments: list[str] | None) -> tuple[ServerOptions, Path | None]:
    defaults = ServerOptions()
    parser = argparse.ArgumentParser(
        prog="python -m server",
        description="Serve a model repository with the tritonserver of NVIDIA's container or of PyPI.",
        epilog="What follows -- goes to tritonserver as it is, for instance: -- --log-info=true",
    )
    parser.add_argument("--model-repository", type=Path, default=defaults.repository, metavar="DIR", dest="repository")
    parser.add_argument("--tritonserver", type=Path, metavar="PATH", help="default: the container's, else the wheel's")
    parser.add_argument(
        "--host", default=defaults.host, help="address to bind to (default: %(default)s, this machine only)"
    )
    parser.add_argument("--http-port", type=int, default=defaults.http_port, metavar="N", help="default: %(default)s")
    parser.add_argument("--grpc-port", type=int, default=defaults.grpc_port, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--metrics-port", type=int, default=defaults.metrics_port, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--ready-timeout-s", type=float, default=defaults.ready_timeout_s, metavar="S", help="default: %(default)s"
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="write Triton's log there (default: the console)")
    parser.add_argument("triton_arguments", nargs="*", metavar="-- ARGUMENT", help="for tritonserver")
    values = vars(parser.parse_args(arguments))
    tritonserver = values.pop("tritonserver")
    values["triton_arguments"] = tuple(values["triton_arguments"])
    return ServerOptions(**values), tritonserver


if __name__ == "__main__":
    sys.exit(main())
