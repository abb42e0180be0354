"""`decode`: read the reply of a plain HTTP upload (curl --data-binary)."""

import argparse
import sys
from typing import Any

from ..errors import ClassificationError
from ..reply import decode_reply
from ..results import ImageResult
from .formats import FORMATS
from .options import EXIT_FAILED


def add_command(commands: Any) -> None:
    parser = commands.add_parser("decode", help="read the reply of curl --data-binary from standard input")
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        results = decode_reply(sys.stdin.buffer.read())
    except ClassificationError as error:
        results = [ImageResult([], error)]
    output = FORMATS[options.format](sys.stdout)
    for index, result in enumerate(results):
        output.add(f"image {index}", result)
    return EXIT_FAILED if any(result.error for result in results) else 0
