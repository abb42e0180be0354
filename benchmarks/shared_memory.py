"""`python -m benchmarks.shared_memory`: what shared memory saves a client on the server's own machine, over gRPC.

Each round asks both ways, by turns: one image after the other, then several at a time.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from client import PipelineClient
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .images import PHOTOS
from .running import positive, run_measurement, sample_photos

FRAME_SHAPE = (1080, 1920, 3)  # 6.2 MB
AT_A_TIME = 4
IMAGES = 80  # a round and way


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shared_memory", description="Time requests with and without shared memory."
    )
    parser.add_argument("--model-repository", type=Path, default=ServerOptions().repository, metavar="DIR")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    return run_measurement(lambda: measure(options.model_repository, options.rounds))


def measure(repository: Path, rounds: int) -> int:
    frame = np.random.default_rng(0).integers(0, 256, FRAME_SHAPE, np.uint8)
    photos = [(sample_photos() / name).read_bytes() for name in PHOTOS]
    print(f"medians of {rounds} rounds; {AT_A_TIME} at a time for images/s\n{'':28}  ms an image  images/s")
    with tempfile.TemporaryDirectory() as folder:
        options = ServerOptions(
            repository=repository, http_port=0, grpc_port=0, metrics_port=0, log=Path(folder, "triton.log")
        )
        with TritonServer(with_free_ports(options)) as server:
            server.wait_until_ready()
            for name, images in (("frames of 1920x1080", [frame]), ("photographs", photos)):
                compare(f"grpc://127.0.0.1:{server.options.grpc_port}", name, images, rounds)
    return 0


def compare(url: str, name: str, images: Sequence[Any], rounds: int) -> None:
    with PipelineClient(url) as sending, PipelineClient(url, shared_memory=True) as sharing:
        results = [(round_of(sending, images), round_of(sharing, images)) for _ in range(rounds + 1)][1:]
    for way, column in zip(("sent", "shared"), zip(*results, strict=True), strict=True):
        latency_ms, images_per_s = (statistics.median(values) for values in zip(*column, strict=True))
        print(f"{name + ', ' + way:28}  {latency_ms:11.1f}  {images_per_s:8.1f}", flush=True)


def round_of(client: PipelineClient, images: Sequence[Any]) -> tuple[float, float]:
    """Milliseconds an image, one after the other; images a second, several at a time."""
    asked = [images[number % len(images)] for number in range(IMAGES)]
    times = [seconds(client, image) for image in asked[: IMAGES // 2]]
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        list(threads.map(client.classify, asked))
    return statistics.median(times) * 1000, IMAGES / (time.perf_counter() - started)


def seconds(client: PipelineClient, image: Any) -> float:
    started = time.perf_counter()
    client.classify(image)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
