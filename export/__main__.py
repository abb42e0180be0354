"""`python -m export`: the command line."""

import argparse
import signal
import sys
from pathlib import Path

from .conversion import MIN_AGREEMENT, PRECISIONS, Conversion
from .errors import ExportError, UnreachableHostError
from .recipes import RECIPES
from .repository import ROOT, TRACKED_RECIPE, TRACKED_REPOSITORY, write_repository

EXIT_FAILED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 130


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    for stopping in (signal.SIGTERM, signal.SIGHUP):  # so that unfinished files are removed
        signal.signal(stopping, lambda number, frame: sys.exit(128 + number))
    recipe = RECIPES[options.recipe]
    exported: Path = options.output or ROOT / "build" / recipe.name
    repository: Path | None = options.repository
    try:
        if options.command == "model":
            from .artifacts import export_model  # torch takes seconds to import: only where it is needed

            print(f"exporting {recipe.name} with weights: {options.weights}", flush=True)
            manifest = export_model(recipe, options.weights, options.seed, exported, conversion_of(options))
            print(
                f"wrote {shown(exported)}: model.onnx ({(exported / 'model.onnx').stat().st_size / 1e6:.1f} MB, opset "
                f"{manifest['onnx']['opset']}), labels.txt, manifest.json; largest difference from torch at batches "
                f"1, 2 and 7: {manifest['largest_relative_difference_from_torch']:.1e} of the largest logit"
            )
        elif repository is None:
            repository = TRACKED_REPOSITORY if recipe.name == TRACKED_RECIPE else exported / "model_repository"
        if repository is not None:
            write_repository(recipe, exported, repository)
            print(f"wrote {shown(repository)}: the model repository of recipe {recipe.name}")
    except UnreachableHostError as error:
        print(f"{error} (weights random or from a FILE need no host)", file=sys.stderr)
        return EXIT_UNREACHABLE
    except ExportError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m export",
        description="From trained weights to a checked ONNX file and a Triton model repository.",
        epilog="Exit status: 0; 1 failed; 2 wrong usage; 3 the host of the pretrained weights cannot be reached.",
    )
    commands = result.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--recipe", choices=RECIPES, default=TRACKED_RECIPE, help="default: %(default)s")
    common.add_argument("--output", type=Path, metavar="DIR", help="folder of the export (default: build/RECIPE)")
    model = commands.add_parser(
        "model", parents=[common], help="write model.onnx, labels.txt and manifest.json, checked against torch"
    )
    model.add_argument(
        "--weights",
        default="pretrained",
        metavar="W",
        help="pretrained, random, or a .pth, .pth.xz or .safetensors file",
    )
    model.add_argument("--seed", type=seed, default=0, help="of random weights (default: %(default)s)")
    add_conversion_options(model)
    model.add_argument("--repository", type=Path, metavar="DIR", help="also write a complete model repository there")
    repository = commands.add_parser(
        "repository", parents=[common], help="write a model repository from the files of an earlier export"
    )
    repository.add_argument(
        "--repository",
        type=Path,
        metavar="DIR",
        help="default: model_repository for recipe resnet50, else build/RECIPE/model_repository",
    )
    return result


def add_conversion_options(model: argparse.ArgumentParser) -> None:
    model.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: %(default)s")
    model.add_argument(
        "--calibration", type=Path, metavar="FOLDER", help="of images, for int8: half calibrate, half are judged"
    )
    model.add_argument(
        "--min-agreement",
        type=share,
        default=MIN_AGREEMENT,
        metavar="SHARE",
        help="of the judged images with fp32's top-1, below which int8 is not written (default: %(default)s)",
    )
    model.add_argument(
        "--normalize-in-graph",
        action="store_true",
        help="begin the graph with the normalization: `preprocess` then hands over 8-bit pixels",
    )


def conversion_of(options: argparse.Namespace) -> Conversion:
    return Conversion(
        precision=options.precision,
        calibration=options.calibration,
        min_agreement=options.min_agreement,
        normalize_in_graph=options.normalize_in_graph,
    )


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text}")
    return value


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2**63 - 1, got {text}")
    return int(text)


def shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
