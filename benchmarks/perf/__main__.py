"""`python -m benchmarks.perf [FOLDER]`: throughput and latency under load, and where the time goes.

perf_analyzer keeps 1, 2, 4, ... requests with one image each in flight, over gRPC and HTTP, first to the ensemble
`pipeline`, then to each of its steps alone. Triton's own statistics say what each step took. The figures are printed,
written to a CSV, and drawn.
"""

import argparse
import contextlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.images import served_images
from benchmarks.perf_analyzer import WINDOWS, PerfAnalyzer, add_window_option, find_perf_analyzer
from benchmarks.running import left, make_output, positive, run_measurement, sample_photos
from client.connection import Connection
from server.installation import ROOT
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .inputs import MOST_FILES, write_inputs
from .measurement import Load, Measurement, measure_load, plan
from .plot import draw
from .report import OUTSIDE, latency_table, step_table, write_csv
from .server_statistics import ENSEMBLE, read_classes, read_steps

CONCURRENCIES = (1, 2, 4, 8, 16, 32)
CSV, PLOT, LOG = "perf.csv", "perf.png", "triton.log"


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    return run_measurement(lambda: measure(options))


def measure(options: argparse.Namespace) -> int:
    make_output(options.output, (CSV, PLOT))
    analyzer = find_perf_analyzer()
    with served(options) as urls:
        steps = [read_steps(url) for url in urls][-1]  # all are asked now, rather than found absent later
        files = served_images(urls[0], options.images or sample_photos(), MOST_FILES)
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            inputs = write_inputs(files, steps, read_classes(urls[0]), Path(folder))
            loads = plan(list(inputs), urls, options.concurrency)
            measurements = measure_all(analyzer, loads, inputs, steps, options)
    draw(measurements, title(steps, len(files), options), options.output / PLOT)
    print_report(measurements, options.output)
    return 0


@contextlib.contextmanager
def served(options: argparse.Namespace) -> Iterator[list[str]]:
    """The URLs of the servers that run already, else those of one that is started for the time of the block."""
    if options.url:
        yield options.url
        return
    own = with_free_ports(ServerOptions(repository=options.model_repository, log=options.output / LOG))
    with TritonServer(own) as server:
        server.wait_until_ready()
        yield [own.grpc_url, own.http_url]


def measure_all(
    analyzer: PerfAnalyzer,
    loads: Sequence[Load],
    inputs: Mapping[str, Mapping[str, str]],
    steps: Sequence[str],
    options: argparse.Namespace,
) -> list[Measurement]:
    """One load after the other, telling each; what was measured is in the CSV however the run ends."""
    measurements: list[Measurement] = []
    started = time.monotonic()
    try:
        for number, load in enumerate(loads):
            print(f"{number + 1} of {len(loads)}: {load}", end=" ... ", flush=True)
            behind = steps if load.model == ENSEMBLE else [load.model]
            measurements.append(measure_load(analyzer, load, inputs[load.model], behind, options.window_s))
            write_csv(measurements, options.output / CSV)
            left_s = (time.monotonic() - started) / len(measurements) * (len(loads) - len(measurements))
            print(f"{measurements[-1]}; {left(left_s)}", flush=True)
    finally:
        if len(measurements) < len(loads):
            where = f", those are in {options.output / CSV}" if measurements else ""
            print(f"\n{len(measurements)} of {len(loads)} measurements were made{where}", file=sys.stderr)
    return measurements


def title(steps: Sequence[str], file_count: int, options: argparse.Namespace) -> str:
    own = f"a server on this machine, {os.cpu_count()} CPUs {platform.machine()}"
    server = " and ".join(options.url) or own
    return (
        f"{steps[1]}, {file_count} image files sent in turn to {server}; each point {WINDOWS} x {options.window_s:g} s"
    )


def print_report(measurements: Sequence[Measurement], output: Path) -> None:
    print(f"\n{latency_table(measurements)}")
    print(f"\nWhere the time of a request to {ENSEMBLE} goes: means in ms, of the steps by Triton's own statistics;")
    print(f"{OUTSIDE} are the client, the network, and Triton between them\n\n{step_table(measurements)}")
    print(f"\nwrote {output / CSV} and {output / PLOT}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    known = parser()
    options = known.parse_args(arguments)
    if len({url.partition("://")[0] for url in options.url}) < len(options.url):
        known.error(f"argument --url: expected one for each protocol, got {' and '.join(options.url)}")
    return options


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.perf",
        description="Measure throughput and latency of the pipeline and its steps, over gRPC and HTTP, under load.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument("images", nargs="?", type=Path, metavar="FOLDER", help="default: scikit-image's photographs")
    server = result.add_mutually_exclusive_group()
    server.add_argument(
        "--model-repository",
        type=Path,
        default=ServerOptions().repository,
        metavar="DIR",
        help="start a server for it, and stop it at the end (default: %(default)s)",
    )
    server.add_argument(
        "--url",
        type=server_url,
        action="append",
        default=[],
        metavar="URL",
        help="measure a server that runs and that nobody else asks meanwhile: grpc://HOST:PORT or http://HOST:PORT; "
        "give both for both protocols",
    )
    result.add_argument(
        "--concurrency",
        type=concurrencies,
        default=CONCURRENCIES,
        metavar="N,N,...",
        help=f"requests in flight (default: {','.join(map(str, CONCURRENCIES))})",
    )
    add_window_option(result)
    result.add_argument(
        "--output", type=Path, default=ROOT / "build" / "perf", metavar="DIR", help="default: build/perf"
    )
    return result


def concurrencies(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(word) for word in text.split(",")}))


def server_url(text: str) -> str:
    """The URL with its port, as perf_analyzer wants it."""
    try:
        connection = Connection(url=text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if connection.is_secure:
        raise argparse.ArgumentTypeError(f"expected grpc:// or http://, without TLS, got {text}")
    return connection.base_url


if __name__ == "__main__":
    sys.exit(main())
