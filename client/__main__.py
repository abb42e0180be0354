"""`python -m client`: classify photos, or read the reply of a plain HTTP upload."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from .errors import ClassificationError, ServiceError
from .pipeline import DEFAULT_URL, PipelineClient
from .reply import decode_reply
from .results import ImageResult

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a file's name may be any bytes
    if options.command == "decode":
        return decode(options.json)
    try:
        client = PipelineClient(options.url, timeout_s=options.timeout_s)
    except ValueError as error:
        print(f"python -m client: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        with client:
            outcomes = [classify(client, photo, options) for photo in options.photos]
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0 if all(outcomes) else EXIT_FAILED


def classify(client: PipelineClient, photo: Path, options: argparse.Namespace) -> bool:
    """Classify one file and print its classes; True where it was classified."""
    started = time.perf_counter()
    try:
        result = client.classify(photo.read_bytes(), options.top_k, options.threshold)
    except OSError as error:
        result = ImageResult([], ServiceError(f"cannot be read: {error.strerror}"))
    except ClassificationError as error:
        result = ImageResult([], error)
    return show(str(photo), result, options.json, f"{(time.perf_counter() - started) * 1000:.0f} ms")


def decode(as_json: bool) -> int:
    """Read a reply from standard input and print its classes."""
    try:
        results = decode_reply(sys.stdin.buffer.read())
    except ClassificationError as error:
        results = [ImageResult([], error)]
    shown = [show(f"image {index}", result, as_json) for index, result in enumerate(results)]
    return 0 if all(shown) else EXIT_FAILED


def show(name: str, result: ImageResult, as_json: bool, time_taken: str = "") -> bool:
    """Print one result, a failure to standard error; True where there was none."""
    error = str(result.error) if result.error else None
    if as_json:
        print(
            json.dumps({"image": name, "classes": [asdict(one) for one in result.classes], "error": error}), flush=True
        )
    elif error:
        print(f"{name}: {error}", file=sys.stderr)
    else:
        print(f"{name}  {time_taken}".rstrip())
        for one in result.classes:
            print(f"  {one.score:8.2%}  {one.class_id:4}  {one.label}")
        if not result.classes:
            print("  no class reaches the threshold")
        sys.stdout.flush()
    return error is None


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m client", epilog="Exit status: 0; 1 where a classification failed; 2 wrong usage."
    )
    commands = result.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON object an image")
    classify = commands.add_parser("classify", parents=[common], help="classify image files with a running server")
    classify.add_argument("photos", nargs="+", type=Path, metavar="PHOTO")
    classify.add_argument(
        "--url", default=DEFAULT_URL, help="grpc://HOST:PORT or http://HOST:PORT (default: %(default)s)"
    )
    classify.add_argument("--top-k", type=int, metavar="K", help="classes an answer (default: the pipeline's, 5)")
    classify.add_argument("--threshold", type=float, metavar="P", help="leave out scores below P, 0 to 1 (default: 0)")
    classify.add_argument(
        "--timeout-s", type=positive, default=30, metavar="S", help="for each photo (default: %(default)s)"
    )
    commands.add_parser("decode", parents=[common], help="read the reply of curl --data-binary from standard input")
    return result


if __name__ == "__main__":
    sys.exit(main())
