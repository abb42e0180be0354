"""`python -m benchmarks.precision`: what fp16, int8 and the normalization in the graph gain and cost on this machine.

ResNet-50 is exported in each form. Each is compared with fp32 on the images that int8 was not calibrated with, then run
at batch 8 by ONNX Runtime in this process, then whole, as the ensemble `pipeline` fed with image files, by
perf_analyzer through a server of its own. All take turns, and medians count.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from export.calibration import image_files, read_pixels
from export.comparison import BATCH, interleaved_seconds, logits_of, normalized, session
from export.precision import halves
from export.recipes import RECIPES
from server.installation import ROOT
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .perf_analyzer import PerfAnalyzer, find_perf_analyzer, rate, write_input_data
from .running import export_repository, positive, run_measurement, sample_photos

RECIPE = RECIPES["resnet50"]
FORMS = {
    "fp32": [],
    "fp16": ["--precision", "fp16"],
    "int8": ["--precision", "int8"],
    "fp32, normalize in graph": ["--normalize-in-graph", "--name", "resnet50_pixels"],
    "int8, normalize in graph": ["--precision", "int8", "--normalize-in-graph", "--name", "resnet50_pixels"],
}
CONCURRENCY = 8  # requests of one image each in flight
SENT_FILES = 32  # the first that the service takes
LOGS = ROOT / "build" / "benchmarks"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One form of the network."""

    megabytes: float
    agreeing: int  # held-out images with fp32's top-1
    images: int  # held out
    in_process: float  # images/s of the network alone
    served: list[float]  # images/s of the whole pipeline, by round


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options.weights, options.calibration or sample_photos(), options.rounds))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.precision",
        description="Compare fp32, fp16, int8 and the normalization in the graph: size, agreement, throughput.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument(
        "--weights", default="pretrained", metavar="W", help="as for `python -m export model` (default: %(default)s)"
    )
    result.add_argument(
        "--calibration", type=Path, metavar="FOLDER", help="of images (default: scikit-image's, which are few)"
    )
    result.add_argument("--rounds", type=positive, default=3, metavar="N", help="default: %(default)s")
    return result


def measure(weights: str, images: Path, rounds: int) -> int:
    analyzer = find_perf_analyzer()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        repositories = {
            form: export_form(weights, images, arguments, Path(folder, str(number)))
            for number, (form, arguments) in enumerate(FORMS.items())
        }
        what = write_input_data(image_files(images, RECIPE.transform)[:SENT_FILES], Path(folder, "input.json"))
        served = measure_served(repositories, analyzer, what, rounds)
        measured = measure_in_process(repositories, images, served)
    print(f"\n{table(measured)}")
    return 0


def export_form(weights: str, images: Path, arguments: Sequence[str], folder: Path) -> Path:
    # Whatever the agreement is, it is in the table.
    calibration = ["--calibration", str(images.absolute()), "--min-agreement", "0"] if "int8" in arguments else []
    return export_repository(RECIPE.name, weights, folder, *arguments, *calibration)


def measure_served(
    repositories: Mapping[str, Path], analyzer: PerfAnalyzer, what: Mapping[str, str], rounds: int
) -> dict[str, list[float]]:
    """Serve all, each by a server of its own, and load one at a time: images/s by round."""
    rates: dict[str, list[float]] = {form: [] for form in repositories}
    with contextlib.ExitStack() as running:
        servers = {}
        for number, (form, repository) in enumerate(repositories.items()):
            options = with_free_ports(ServerOptions(repository=repository, log=LOGS / f"precision-{number}.log"))
            servers[form] = running.enter_context(TritonServer(options))
            servers[form].wait_until_ready()
        for number in range(rounds):
            for form, server in servers.items():
                rates[form].append(rate(analyzer.load_server(server.options, CONCURRENCY, what)))
            print(
                f"round {number + 1} of {rounds}: {', '.join(f'{form} {rates[form][-1]:.1f}' for form in rates)}",
                flush=True,
            )
    return rates


def measure_in_process(
    repositories: Mapping[str, Path], images: Path, served: Mapping[str, list[float]]
) -> dict[str, Measured]:
    graphs = {form: next(repository.glob("*/1/model.onnx")) for form, repository in repositories.items()}
    _, held_out = halves(read_pixels(images, RECIPE.transform))
    inputs = {form: graph_input(form, held_out) for form in graphs}
    top_1 = {form: logits_of(graph, inputs[form]).argmax(axis=1) for form, graph in graphs.items()}
    batches = [inputs[form][:BATCH] for form in graphs]
    seconds = interleaved_seconds([session(graph) for graph in graphs.values()], batches)
    return {
        form: Measured(
            megabytes=graph.stat().st_size / 1e6,
            agreeing=int((top_1[form] == top_1["fp32"]).sum()),
            images=len(held_out),
            in_process=len(batches[0]) / taken,
            served=served[form],
        )
        for (form, graph), taken in zip(graphs.items(), seconds, strict=True)
    }


def graph_input(form: str, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    return pixels if "--normalize-in-graph" in FORMS[form] else normalized(pixels, RECIPE.transform)


def table(measured: Mapping[str, Measured]) -> str:
    """As Markdown: each form's size, agreement and medians, with the ratio to fp32."""
    first = next(iter(measured.values()))
    lines = [
        f"| | MB | same top-1 as fp32, of {first.images} | network alone, batch {BATCH}, images/s "
        "| pipeline, images/s |",
        "|---|---|---|---|---|",
    ]
    for form, each in measured.items():
        served, reference = statistics.median(each.served), statistics.median(first.served)
        lines.append(
            f"| {form} | {each.megabytes:.1f} | {each.agreeing} | {each.in_process:.1f} "
            f"({each.in_process / first.in_process:.2f}x) | {served:.1f} ({served / reference:.2f}x) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
