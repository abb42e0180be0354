"""`python -m benchmarks.first_request`: whether the first request after a start is as fast as the hundredth.

Each round starts the real server anew and sends one photograph `REQUESTS` times, one after the other.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tritonclient.grpc

from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .running import positive, run_measurement, sample_photos

REQUESTS = 100
LAST = 20  # of them: their median stands for the hundredth, which alone is as noisy as any


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options.model_repository, options.rounds))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.first_request",
        description="Time the first, the second and the hundredth request after a start of the server.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument("--model-repository", type=Path, default=ServerOptions().repository, metavar="DIR")
    result.add_argument("--rounds", type=positive, default=5, metavar="N", help="of starts (default: %(default)s)")
    return result


def measure(repository: Path, rounds: int) -> int:
    print("start s  first ms  second ms  hundredth ms  first / hundredth")
    results = list(measured(repository, rounds))
    medians = (statistics.median(column) for column in zip(*results, strict=True))
    print(f"median of {rounds}:\n{shown(*medians)}")
    return 0


def measured(repository: Path, rounds: int) -> Iterator[tuple[float, float, float, float]]:
    """For each start: seconds to readiness; milliseconds of the first, the second and the hundredth request."""
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "triton.log")
            options = ServerOptions(repository=repository, http_port=0, grpc_port=0, metrics_port=0, log=log)
            options = with_free_ports(options)
            started = time.monotonic()
            with TritonServer(options) as server:
                server.wait_until_ready()
                seconds = time.monotonic() - started
                times = request_times(options.grpc_port)
        result = seconds, times[0], times[1], statistics.median(times[-LAST:])
        print(shown(*result), flush=True)
        yield result


def request_times(port: int) -> list[float]:
    """Milliseconds of each of REQUESTS requests with one photograph."""
    file = np.fromfile(sample_photos() / "rocket.jpg", np.uint8)
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port}")
    client.is_server_live()  # the connection is the client's, not the service's
    raw_image = tritonclient.grpc.InferInput("raw_image", [1, file.size], "UINT8")
    raw_image.set_data_from_numpy(file[np.newaxis])
    times = []
    for _ in range(REQUESTS):
        started = time.perf_counter()
        client.infer("pipeline", [raw_image])
        times.append((time.perf_counter() - started) * 1000)
    client.close()
    return times


def shown(seconds: float, first: float, second: float, hundredth: float) -> str:
    return f"{seconds:7.1f}  {first:8.1f}  {second:9.1f}  {hundredth:12.1f}  {first / hundredth:17.2f}"


if __name__ == "__main__":
    sys.exit(main())
