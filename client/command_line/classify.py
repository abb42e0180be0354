"""`classify`: any number of images, with their results written as they come."""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import AccessError, ClassificationError, NotServedError, ParameterError, UnavailableError
from ..images import Image
from ..pipeline import PipelineClient
from .canary import Canary, add_options, open_canary
from .formats import FORMATS
from .options import EXIT_FAILED, UsageError, connection_options, open_client
from .output import Output, open_output
from .progress import Progress
from .sources import Source, Sources


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "classify", parents=[connection_options()], help="classify images", description=__doc__, epilog=EPILOG
    )
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="a file, a folder, a 'glob', a file:// URL, or - for standard input"
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="classes an image (default: the pipeline's, 5)")
    parser.add_argument("--threshold", type=float, metavar="P", help="leave out scores below P, 0 to 1 (default: 0)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there (default: standard output)")
    parser.add_argument("--resume", action="store_true", help="go on where a run with that --output was broken off")
    parser.add_argument("--annotate", type=Path, metavar="DIR", help="write copies with the classes drawn on")
    parser.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write a page of thumbnails, to filter and sort"
    )
    add_options(parser)
    parser.set_defaults(run=run)


EPILOG = "A folder stands for the image files in it and below; to take others, name them."
STOPPING = (UnavailableError, AccessError, NotServedError)  # the next image would fail in the same way


def run(options: argparse.Namespace) -> int:
    is_long = len(options.images) > 1 or not Path(options.images[0]).is_file()
    with (
        open_client(options, max_retries=None if is_long else 5) as client,  # None: wait for a restart
        open_output(options) as output,
        open_canary(options, client) as canary,
    ):
        sources = Sources(options.images)
        total = sum(source.name not in output.done for source in sources)
        if sources.left_out:
            what = "left out, not named as image files are, or links to folders, pipes, devices"
            print(f"{what}: {sources.left_out:,}", file=sys.stderr)
        if output.done:
            print(f"done before, in {options.output}: {len(output.done):,}", file=sys.stderr)
        elif total == 0:
            raise UsageError(f"expected images, found none in {' '.join(options.images)}")
        with Progress(total, options.output) as progress:
            failed = _classify(client, sources, options, output, progress, canary)
        return EXIT_FAILED if failed or output.problems else 0


def _classify(
    client: PipelineClient,
    sources: Sources,
    options: argparse.Namespace,
    output: Output,
    progress: Progress,
    canary: Canary | None,
) -> int:
    """The number of images that failed, and of failures that ended the run."""
    failed = 0
    sent: deque[Source] = deque()
    results = client.classify_each(_images(sources, output, sent, canary), options.top_k, options.threshold)
    try:
        for result in results:
            if isinstance(result.error, STOPPING):
                raise result.error
            output.add(sent.popleft(), result)
            progress.add(result)
            failed += result.error is not None
    except ParameterError as error:
        raise UsageError(str(error)) from error
    except ClassificationError as error:
        print(error, file=sys.stderr)
        if options.output:
            print(f"what is done stands in {options.output}; --resume goes on from there", file=sys.stderr)
        return failed + 1
    return failed


def _images(sources: Sources, output: Output, sent: deque[Source], canary: Canary | None) -> Iterator[Image]:
    """The images that are to be classified; their sources are left in `sent` for when the results come."""
    for source in sources:
        if source.name not in output.done:
            sent.append(source)
            if canary is not None:
                canary.see(source.image)
            yield source.image
