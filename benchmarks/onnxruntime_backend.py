"""`python -m benchmarks.onnxruntime_backend`: what the stand-in for NVIDIA's onnxruntime backend costs.

The same ResNet-50 at batch 8 with the same threads, first in this process by ONNX Runtime alone, then by perf_analyzer
through a real server, with the tensors in system shared memory. Other work on the machine slows both, unequally: they
take turns, one at a time, and medians count.
"""

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from server.checks import read_config
from server.installation import ROOT
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .perf_analyzer import MEASUREMENT_S, PerfAnalyzer, find_perf_analyzer, rate
from .running import export_repository, positive, run_measurement

MODEL = "resnet50"
BATCH = 8
IN_PROCESS = 0  # in place of a concurrency
CONCURRENCIES = (1, 2)  # requests in flight; 1 is compared, 2 shows what remains to be gained by overlap
TARGET_RATIO = 0.95
LOG = ROOT / "build" / "benchmarks" / "triton.log"


@dataclass(frozen=True, kw_only=True)
class Round:
    """Images/s of what ran one after the other."""

    in_process: float
    served: dict[int, float]  # by concurrency

    def __str__(self) -> str:
        rates = ", ".join(f"{rate:.1f} at concurrency {concurrency}" for concurrency, rate in self.served.items())
        return f"in-process {self.in_process:.1f}, served {rates} images/s"

    @property
    def ratio(self) -> float:
        return self.served[1] / self.in_process


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options.weights, options.rounds))


def measure(weights: str, rounds: int) -> int:
    analyzer = find_perf_analyzer()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        repository = write_classifier_repository(weights, Path(folder))
        measured = measure_rounds(repository, analyzer, rounds)
    print(f"\n{table(measured)}")
    return 0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.onnxruntime_backend",
        description="Compare the stand-in onnxruntime backend, served, with ONNX Runtime in one process.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument(
        "--weights",
        default="random",
        metavar="W",
        help="as for `python -m export model`; the arithmetic is the same for all (default: %(default)s)",
    )
    result.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="about 25 s each (default: %(default)s)"
    )
    return result


def write_classifier_repository(weights: str, folder: Path) -> Path:
    """Export into `folder` and return a repository with the classifier alone: nothing else takes memory or time."""
    whole, alone = export_repository(MODEL, weights, folder / "export"), folder / "model_repository"
    alone.mkdir()
    shutil.move(whole / MODEL, alone / MODEL)
    return alone


def measure_rounds(repository: Path, analyzer: PerfAnalyzer, count: int) -> list[Round]:
    """Serve `repository` and measure, telling each round; every other one runs backwards, so that drifts cancel."""
    session = in_process_session(repository)
    with TritonServer(with_free_ports(ServerOptions(repository=repository, log=LOG))) as server:
        server.wait_until_ready()
        rounds = []
        for number in range(count):
            rounds.append(measure_round(session, analyzer, server, backwards=number % 2 == 1))
            print(f"round {number + 1} of {count}: {rounds[-1]}", flush=True)
        return rounds


def measure_round(session: Any, analyzer: PerfAnalyzer, server: TritonServer, *, backwards: bool) -> Round:
    order = [IN_PROCESS, *CONCURRENCIES]
    rates = {}
    for load in reversed(order) if backwards else order:
        if load == IN_PROCESS:
            rates[load] = measure_in_process(session)
        else:
            rates[load] = measure_served(analyzer, server.options, load)
    return Round(in_process=rates[IN_PROCESS], served={load: rates[load] for load in CONCURRENCIES})


def in_process_session(repository: Path) -> Any:
    """Load the served model with the threads of its config.pbtxt, and run it once: the first run allocates."""
    parameters = read_config(repository / MODEL / "config.pbtxt").parameters
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(parameters["intra_op_thread_count"].string_value)
    session = onnxruntime.InferenceSession(
        str(repository / MODEL / "1" / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    session.run(["logits"], {"input": random_images()})
    return session


def random_images() -> "np.ndarray[Any, np.dtype[np.float32]]":
    return np.random.default_rng(0).random((BATCH, 3, 224, 224), dtype=np.float32)


def measure_in_process(session: Any) -> float:
    """Return images/s of ONNX Runtime alone, over as long as perf_analyzer counts."""
    images = random_images()
    runs = 0
    started = time.monotonic()
    while (elapsed := time.monotonic() - started) < MEASUREMENT_S:
        session.run(["logits"], {"input": images})
        runs += 1
    return runs * BATCH / elapsed


def measure_served(analyzer: PerfAnalyzer, options: ServerOptions, concurrency: int) -> float:
    """Return images/s through the server, with `concurrency` requests in flight, as its client counts them."""
    what = {"-m": MODEL, "-b": str(BATCH), "--shared-memory": "system"}
    return rate(analyzer.load_server(options, concurrency, what))


def table(rounds: Sequence[Round]) -> str:
    """The rates with their spread, and the ratio of the rounds against the target."""
    series = {"ONNX Runtime in one process": [single.in_process for single in rounds]}
    for concurrency in CONCURRENCIES:
        series[f"served, concurrency {concurrency}"] = [single.served[concurrency] for single in rounds]
    ratios = [single.ratio for single in rounds]
    verdict = "met" if statistics.median(ratios) >= TARGET_RATIO else "missed"
    lines = [
        f"{MODEL}, batch {BATCH}, ONNX Runtime {onnxruntime.__version__}, {os.cpu_count()} cores {platform.machine()}, "
        f"{len(rounds)} rounds",
        f"{'images/s':32}  median  lowest  highest",
        *(f"{name:32}  {statistics.median(x):6.1f}  {min(x):6.1f}  {max(x):7.1f}" for name, x in series.items()),
        f"{'ratio, concurrency 1':32}  {statistics.median(ratios):6.3f}  {min(ratios):6.3f}  {max(ratios):7.3f}  "
        f"target {TARGET_RATIO} or more: {verdict}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
