"""`python -m export`: the command line."""

import argparse
import signal
import sys
from pathlib import Path

from .check.linter import find
from .check.releases import OURS, RELEASES
from .classifier import ACTIVATIONS, TRACKED, Classifier, check_name, read_manifest
from .conversion import MIN_AGREEMENT, PRECISIONS, Conversion
from .errors import ExportError, UnreachableHostError
from .recipes import RECIPES, recipes_table
from .repository import ROOT, TRACKED_REPOSITORY, has_deployed_versions, write_repository

EXIT_FAILED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 130


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    for stopping in (signal.SIGTERM, signal.SIGHUP):  # so that unfinished files are removed
        signal.signal(stopping, lambda number, frame: sys.exit(128 + number))
    try:
        return int(options.run(options) or 0)
    except UnreachableHostError as error:
        print(f"{error} (weights random or from a FILE need no host)", file=sys.stderr)
        return EXIT_UNREACHABLE
    except ExportError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def run_check(options: argparse.Namespace) -> int:
    findings = find(options.repository, options.triton)
    for finding in findings:
        print(finding)
    print(f"{shown(options.repository)}: {len(findings) or 'nothing'} found, for Triton {options.triton}")
    return EXIT_FAILED if findings else 0


def run_list(options: argparse.Namespace) -> None:
    print(recipes_table())


def run_model(options: argparse.Namespace) -> None:
    name = options.name or default_name(options)
    check_name(name)
    exported: Path = options.output or ROOT / "build" / name
    print(f"exporting {name} with weights: {options.weights or 'its own'}", flush=True)
    from .artifacts import export_classifier  # torch takes seconds to import: only where it is needed
    from .sources import source_of

    manifest = export_classifier(source_of(options), name, options.activation, exported, conversion_of(options))
    for change in manifest["added_to_the_graph"]:
        print(f"added to the graph: {change}")
    print(
        f"wrote {shown(exported)}: model.onnx ({(exported / 'model.onnx').stat().st_size / 1e6:.1f} MB, opset "
        f"{manifest['onnx']['opset']}), labels.txt, manifest.json; {in_precision(options.precision)} from "
        f"{'the graph as it came' if options.onnx else 'torch'} at batches 1, 2 and 7: "
        f"{manifest['largest_relative_difference']:.1e} of the largest output"
    )
    if options.repository:
        write(read_manifest(exported), exported, options.repository)


def in_precision(precision: str) -> str:
    return "largest difference" if precision == "fp32" else f"largest difference in {precision}"


def run_repository(options: argparse.Namespace) -> None:
    exported: Path = options.output or ROOT / "build" / (options.name or TRACKED.name)
    classifier = read_manifest(exported)
    if options.name not in (None, classifier.name):
        raise ExportError(f"{exported}: expected an export of {options.name}, got one of {classifier.name}")
    write(classifier, exported, options.repository or default_repository(classifier, exported))


def default_repository(classifier: Classifier, exported: Path) -> Path:
    return TRACKED_REPOSITORY if classifier == TRACKED else exported / "model_repository"


def write(classifier: Classifier, exported: Path, repository: Path) -> None:
    write_repository(classifier, exported, repository)
    print(f"wrote {shown(repository)}: the model repository of {classifier.name}")
    if has_deployed_versions(repository / classifier.name):
        print(
            f"versions of the network were deployed there and stay; to add this one: make deploy DIR={shown(exported)}"
        )


def default_name(options: argparse.Namespace) -> str:
    """The recipe's, the file's or the function's own name."""
    file: Path | None = options.onnx or options.torchscript
    if file:
        return file.stem
    return options.factory.rpartition(":")[2] if options.factory else options.recipe  # type: ignore[no-any-return]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse, and end with status 2 where options contradict each other."""
    result, model = parsers()
    options = result.parse_args(arguments)
    if options.command != "model":
        return options
    own = next((flag for flag in ("onnx", "torchscript", "factory") if getattr(options, flag)), None)
    if own and options.labels is None:
        model.error(f"--{own} needs --labels FILE: one name a line, line i for class i")
    if own == "factory" and options.weights in (None, "random", "pretrained"):
        model.error("--factory needs --weights FILE: what torch.save(model.state_dict(), FILE) wrote")
    if own in ("onnx", "torchscript") and options.weights:
        model.error(f"--weights is not for --{own}: the file has its weights in it")
    check_int8_options(model, options)
    if not own:
        options.recipe = options.recipe or TRACKED.name
        options.weights = options.weights or "pretrained"
    return options


def check_int8_options(model: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with status 2 where int8 has no images, or another precision has what is for int8 alone."""
    if options.precision == "int8":
        if options.calibration is None:
            model.error("--precision int8 needs --calibration FOLDER: some hundred images such as are served")
        return
    for flag, value in (("--calibration", options.calibration), ("--min-agreement", options.min_agreement)):
        if value is not None:
            model.error(f"{flag} is for --precision int8, got --precision {options.precision}: leave it away")


def parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser of the whole command line, and that of `model`."""
    result = argparse.ArgumentParser(
        prog="python -m export",
        description="From trained weights to a checked ONNX file and a Triton model repository.",
        epilog="Exit status: 0; 1 failed; 2 wrong usage; 3 the host of the pretrained weights cannot be reached.",
    )
    commands = result.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="show the recipes: transform, published top-1, where weights are from")
    listing.set_defaults(run=run_list)
    model = commands.add_parser("model", help="write model.onnx, labels.txt and manifest.json, checked")
    model.set_defaults(run=run_model)
    add_source_options(model)
    add_transform_options(model)
    add_conversion_options(model)
    model.add_argument("--name", metavar="NAME", help="of the classifier (default: the recipe's, file's or function's)")
    model.add_argument("--output", type=Path, metavar="DIR", help="folder of the export (default: build/NAME)")
    model.add_argument("--repository", type=Path, metavar="DIR", help="also write a complete model repository there")
    repository = commands.add_parser("repository", help="write a model repository from the files of an earlier export")
    repository.set_defaults(run=run_repository)
    repository.add_argument("--name", metavar="NAME", help=f"of the classifier (default: {TRACKED.name})")
    repository.add_argument("--output", type=Path, metavar="DIR", help="folder of the export (default: build/NAME)")
    repository.add_argument(
        "--repository",
        type=Path,
        metavar="DIR",
        help=f"default: model_repository for recipe {TRACKED.name}, else model_repository in the export's folder",
    )
    checking = commands.add_parser("check", help="find what Triton would refuse or misunderstand in a model repository")
    checking.set_defaults(run=run_check)
    checking.add_argument("repository", type=folder, metavar="REPOSITORY", help="folder with one folder a model")
    checking.add_argument("--triton", choices=RELEASES, default=OURS, help="served with (default: %(default)s)")
    return result, model


def add_conversion_options(model: argparse.ArgumentParser) -> None:
    model.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: %(default)s")
    model.add_argument(
        "--calibration", type=folder, metavar="FOLDER", help="of images, for int8: half calibrate, half are judged"
    )
    model.add_argument(
        "--min-agreement",
        type=share,
        metavar="SHARE",
        help=f"of the judged images with fp32's top-1, below which int8 is not written (default: {MIN_AGREEMENT})",
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
        min_agreement=MIN_AGREEMENT if options.min_agreement is None else options.min_agreement,
        normalize_in_graph=options.normalize_in_graph,
    )


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text}")
    return value


def add_source_options(model: argparse.ArgumentParser) -> None:
    group = model.add_argument_group("what is exported", "one of:")
    sources = group.add_mutually_exclusive_group()
    sources.add_argument(
        "--recipe", choices=RECIPES, metavar="NAME", help=f"of `python -m export list` (default: {TRACKED.name})"
    )
    sources.add_argument("--onnx", type=Path, metavar="FILE", help="a graph: NCHW or NHWC, float or uint8, any names")
    sources.add_argument(
        "--torchscript",
        type=Path,
        metavar="FILE",
        help="what torch.jit.save wrote; such a file is a program, which runs here: only from someone you trust",
    )
    sources.add_argument(
        "--factory", metavar="MODULE:CALLABLE", help="your Python function that builds the architecture, with --weights"
    )
    model.add_argument(
        "--weights",
        metavar="W",
        help="a state_dict in .pth, .pt, .pth.xz or .safetensors; of a recipe also pretrained (default) or random",
    )
    model.add_argument("--seed", type=seed, default=0, help="of random weights (default: %(default)s)")
    model.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help="one name a line, line i for class i (default, of a recipe: ImageNet's)",
    )
    model.add_argument(
        "--activation",
        choices=ACTIVATIONS,
        default="softmax",
        help="what makes scores of the outputs: softmax where one class is right, sigmoid where several may be, none "
        "where the network gives scores itself (default: %(default)s)",
    )


def add_transform_options(model: argparse.ArgumentParser) -> None:
    group = model.add_argument_group(
        "the transform of the weights' training", "all five, but for what a recipe or a graph of fixed size says itself"
    )
    group.add_argument("--transform", type=Path, metavar="FILE.toml", help="resize_size = 256 and so on; flags win")
    group.add_argument("--resize-size", type=int, metavar="PIXELS", help="shorter side")
    group.add_argument("--crop-size", type=int, metavar="PIXELS", help="both sides of the middle that is cut out")
    group.add_argument("--interpolation", choices=("bilinear", "bicubic"), help="both antialiased")
    for name, what in (("mean", "subtracted from"), ("std", "then divides")):
        group.add_argument(
            f"--{name}",
            type=float,
            nargs=3,
            metavar=("R", "G", "B"),
            help=f"{what} pixels on the scale of 0 to 1; for a network that takes 0 to 255: 0 and 0.00392156862745098",
        )


def folder(text: str) -> Path:
    if not Path(text).is_dir():
        found = "a file" if Path(text).exists() else "not there"
        raise argparse.ArgumentTypeError(f"expected a folder, got {text}, which is {found}")
    return Path(text)


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2**63 - 1, got {text}")
    return int(text)


def shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
