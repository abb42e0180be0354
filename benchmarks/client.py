"""`python -m benchmarks.client`: what the client costs, against perf_analyzer's figures for the same server and images.

With ResNet-50 and with a network that costs nothing. Latency: images one by one, by PipelineClient and by perf_analyzer
at concurrency 1. Throughput: a folder, by `python -m client classify` from start to end, and by perf_analyzer at the
concurrency that suits it best. All take turns, and medians count.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from client import PipelineClient
from server.installation import ROOT
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .errors import BenchmarkError
from .images import served_images
from .networks import write_trivial
from .perf_analyzer import MEASUREMENT_S, PerfAnalyzer, find_perf_analyzer, rate, write_input_data
from .running import export_repository, positive, run_export, run_measurement, sample_photos

CONCURRENCIES = (2, 4, 8, 16, 32)
FOLDER_SIZES = {"resnet50": 500, "trivial": 10_000}  # images of one run over a folder
SMALL_FOLDER = 500  # beside which the memory of a run over a large one is held
FOLDER_TIMEOUT_S = 900
MAX_LATENCY_RATIO, MIN_THROUGHPUT_RATIO = 1.1, 0.95  # with ResNet-50
LOG = ROOT / "build" / "benchmarks" / "client.log"


@dataclass
class Series:
    """The figures of one network, one a round."""

    latency_ms: list[float] = field(default_factory=list)
    perf_analyzer_latency_ms: list[float] = field(default_factory=list)
    images_per_s: list[float] = field(default_factory=list)
    perf_analyzer_images_per_s: list[float] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options.weights, options.images or sample_photos(), options.rounds))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.client",
        description="Compare the client's latency and throughput with perf_analyzer's.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument("images", nargs="?", type=Path, metavar="FOLDER", help="default: scikit-image's photographs")
    result.add_argument(
        "--weights", default="pretrained", metavar="W", help="as for `python -m export model` (default: %(default)s)"
    )
    result.add_argument("--rounds", type=positive, default=5, metavar="N", help="default: %(default)s")
    return result


def measure(weights: str, images: Path, rounds: int) -> int:
    analyzer = find_perf_analyzer()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        networks: dict[str, Callable[[Path], Path]] = {
            "resnet50": lambda output: export_repository("resnet50", weights, output),
            "trivial": lambda output: run_export(output, *write_trivial(output)),
        }
        for network, export in networks.items():
            (folder / network).mkdir()
            options = with_free_ports(ServerOptions(repository=export(folder / network), log=LOG))
            with TritonServer(options) as server:
                server.wait_until_ready()
                measure_network(network, options, analyzer, images, folder / network, rounds)
    return 0


def measure_network(
    network: str, options: ServerOptions, analyzer: PerfAnalyzer, images: Path, folder: Path, rounds: int
) -> None:
    url = options.grpc_url
    files = served_images(url, images)
    what = write_input_data(files, folder / "input.json")
    best = max(CONCURRENCIES, key=lambda concurrency: rate(analyzer.load_server(options, concurrency, what)))
    many = linked(files, folder / "many", FOLDER_SIZES[network])
    series = Series()
    for number in range(rounds):
        series.perf_analyzer_latency_ms.append(latency_ms(analyzer.load_server(options, 1, what)))
        series.latency_ms.append(client_latency_ms(url, files))
        series.perf_analyzer_images_per_s.append(rate(analyzer.load_server(options, best, what)))
        images_per_s, peak_bytes = classify_folder(url, many, FOLDER_SIZES[network], folder / "results.jsonl")
        series.images_per_s.append(images_per_s)
        print(f"{network}, round {number + 1} of {rounds}: {images_per_s:.1f} images/s", flush=True)
    few = linked(files, folder / "few", SMALL_FOLDER)
    _, small_bytes = classify_folder(url, few, SMALL_FOLDER, folder / "results.jsonl")
    print(table(network, series, best))
    print(
        f"memory of a run over {FOLDER_SIZES[network]:,} images {peak_bytes / 1e6:.0f} MB, "
        f"over {SMALL_FOLDER} {small_bytes / 1e6:.0f} MB\n",
        flush=True,
    )


def linked(files: Sequence[Path], folder: Path, count: int) -> Path:
    """A folder of `count` links to `files`, in turn."""
    folder.mkdir()
    for number, file in enumerate(itertools.islice(itertools.cycle(files), count)):
        (folder / f"{number:06}{file.suffix}").symlink_to(file.absolute())
    return folder


def latency_ms(row: Mapping[str, str]) -> float:
    """The median, of a row of perf_analyzer's report, which has microseconds."""
    return float(row["p50 latency"]) / 1000


def client_latency_ms(url: str, files: Sequence[Path]) -> float:
    """The median over as much time as perf_analyzer takes."""
    contents = [file.read_bytes() for file in files]
    taken = []
    with PipelineClient(url) as client:
        client.classify(contents[0])
        end = time.perf_counter() + MEASUREMENT_S
        for content in itertools.cycle(contents):
            started = time.perf_counter()
            client.classify(content)
            taken.append(time.perf_counter() - started)
            if time.perf_counter() > end:
                return 1000 * statistics.median(taken)
    raise AssertionError("cycle() does not end")


def classify_folder(url: str, folder: Path, count: int, output: Path) -> tuple[float, int]:
    """Images/s of the command line from its start to its end, and the most memory that it had, in bytes."""
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "client", "classify", str(folder), "--url", url]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--format", "jsonl", "--output", str(output)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    deadline = threading.Timer(FOLDER_TIMEOUT_S, process.kill)
    deadline.start()
    _, status, usage = os.wait4(process.pid, 0)
    deadline.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    if process.returncode != 0 or len({row["image"] for row in rows}) != count:
        raise BenchmarkError(f"client: expected {count} results, got {len(rows)}, exit status {process.returncode}")
    return count / seconds, 1024 * usage.ru_maxrss


def table(network: str, series: Series, best: int) -> str:
    """Medians with their spread, and the median of the ratios of each round."""
    rows = {
        "latency ms, perf_analyzer at concurrency 1": series.perf_analyzer_latency_ms,
        "latency ms, PipelineClient": series.latency_ms,
        "ratio of latencies": ratios(series.latency_ms, series.perf_analyzer_latency_ms),
        f"images/s, perf_analyzer at concurrency {best}": series.perf_analyzer_images_per_s,
        "images/s, a folder by the command line": series.images_per_s,
        "ratio of throughputs": ratios(series.images_per_s, series.perf_analyzer_images_per_s),
    }
    latencies = statistics.median(rows["ratio of latencies"])
    throughputs = statistics.median(rows["ratio of throughputs"])
    lines = [f"{network:44}  median  lowest  highest"]
    lines += [f"{name:44}  {statistics.median(x):6.2f}  {min(x):6.2f}  {max(x):7.2f}" for name, x in rows.items()]
    lines.append(
        f"latency at most {MAX_LATENCY_RATIO} times perf_analyzer's: {verdict(latencies <= MAX_LATENCY_RATIO)}"
    )
    lines.append(
        f"throughput at least {MIN_THROUGHPUT_RATIO} of perf_analyzer's: {verdict(throughputs >= MIN_THROUGHPUT_RATIO)}"
    )
    return "\n".join(lines)


def verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
