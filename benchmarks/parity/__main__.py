"""`python -m benchmarks.parity FOLDER`: whether the service sees one's own images as a training does.

The real server with the recipe's export is asked about each file, its pixels are compared with Pillow's, its best class
with that of torch fed by Pillow. The figures are printed and written to a CSV, the worst cases drawn side by side.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import rich.console
import rich.progress
import torch

from benchmarks.errors import BenchmarkError
from benchmarks.running import EXIT_FAILED, export_repository, run_measurement
from export.recipes import RECIPES, Transform
from export.weights import load_network
from server.installation import ROOT
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .comparison import FileResult, Reference, Served, Summary, judge
from .observing import UNKNOWN_FORMAT, Service, look_at_reference, read_file, torch_scores
from .picture import Case, denormalized, draw, worst
from .report import lists, table, verdict, write_csv

BATCH = 8  # images of one forward pass of torch
WORST_CASES = 5
CSV, PICTURE, LOG = "parity.csv", "worst.png", "triton.log"


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a file's name may be any bytes
    return run_measurement(lambda: measure(options))


def measure(options: argparse.Namespace) -> int:
    paths = sorted(path for path in options.images.rglob("*") if path.is_file())
    make_output(options.output)
    recipe = RECIPES[options.recipe]
    results: list[FileResult] = []
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        repository = export_repository(recipe.name, options.weights, Path(folder))
        network = load_network(recipe, options.weights, seed=0).module
        ports_and_log = with_free_ports(ServerOptions(repository=repository, log=options.output / LOG))
        with TritonServer(ports_and_log) as server, Service(server) as service:
            server.wait_until_ready()
            for result, case in compare(progress(paths), options.images, service, network, recipe.transform):
                results.append(result)
                cases = worst([*cases, case] if case else cases, WORST_CASES)
    write_csv(results, options.output / CSV)
    if cases:
        draw(cases).save(options.output / PICTURE)
    print_report(results, options.output)
    return 0 if Summary(results).is_met else EXIT_FAILED


def make_output(folder: Path) -> None:
    """Make the folder, without the files of an earlier run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (CSV, PICTURE):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise BenchmarkError(
            f"--output: expected a folder that can be written to, got {folder}: {error.strerror}"
        ) from error


def progress(paths: list[Path]) -> Iterable[Path]:
    """Yield `paths`, with a bar on the terminal."""
    return rich.progress.track(paths, "comparing", console=rich.console.Console(stderr=True))


def compare(
    paths: Iterable[Path], folder: Path, service: Service, network: torch.nn.Module, transform: Transform
) -> Iterator[tuple[FileResult, Case | None]]:
    """Compare file by file, torch's part in batches; a Case comes where both sides have pixels."""
    remaining = iter(paths)
    while batch := list(itertools.islice(remaining, BATCH)):
        observed = [(path, *observe(path, service, transform)) for path in batch]
        inputs = [reference.normalized for _, _, reference in observed if reference.normalized is not None]
        scores = iter(torch_scores(network, inputs) if inputs else ())
        for path, served, reference in observed:
            own_scores = None if reference.normalized is None else next(scores)
            result = judge(str(path.relative_to(folder)), served, reference, own_scores, transform.std)
            yield result, case_of(result, served, reference, transform)


def observe(path: Path, service: Service, transform: Transform) -> tuple[Served, Reference]:
    try:
        file = read_file(path)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        return Served(), Reference(format=UNKNOWN_FORMAT, size="", not_compared=reason)
    return service.look_at(file), look_at_reference(file, transform)


def case_of(result: FileResult, served: Served, reference: Reference, transform: Transform) -> Case | None:
    if served.normalized is None or reference.normalized is None:
        return None
    crops = (denormalized(image, transform.mean, transform.std) for image in (served.normalized, reference.normalized))
    return Case(result, *crops)


def print_report(results: list[FileResult], output: Path) -> None:
    written = [output / name for name in (CSV, PICTURE) if (output / name).exists()]
    blocks = [table(results), lists(results), f"wrote {' and '.join(map(str, written))}\n{verdict(results)}"]
    print("\n\n".join(["", *filter(None, blocks)]))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.parity",
        description="Compare the service's pixels and classes with Pillow's and torch's, on your own images.",
        epilog="Exit status: 0 every limit is met; 1 one is not, or it failed; 2 wrong usage.",
    )
    result.add_argument(
        "images", type=folder_of_files, metavar="FOLDER", help="searched with its subfolders; any files"
    )
    result.add_argument("--recipe", choices=RECIPES, default="resnet50", help="default: %(default)s")
    result.add_argument(
        "--weights", default="pretrained", metavar="W", help="as for `python -m export model` (default: %(default)s)"
    )
    result.add_argument(
        "--output", type=Path, default=ROOT / "build" / "parity", metavar="DIR", help="default: build/parity"
    )
    return result


def folder_of_files(text: str) -> Path:
    path = Path(text)
    if not any(child.is_file() for child in path.rglob("*")):
        raise argparse.ArgumentTypeError(f"expected a folder with image files, got {text}")
    return path


if __name__ == "__main__":
    sys.exit(main())
