"""`classify --canary SHARE`: what the canary says of a share of the images, while the run goes on."""

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..canary import CANARY, CanaryClient, CanaryComparison, is_sampled
from ..errors import ClassificationError, NotServedError, UnavailableError
from ..images import Image
from ..operations import model_config
from ..pipeline import PipelineClient
from ..results import ImageResult
from .options import UsageError, open_client

AT_A_TIME = 4  # images; the run waits for them, so that memory stays bounded


class Canary:
    """Asks both ensembles about each image that is sampled, one image a request, the one and the other first by turns.

    The results of the run are not from here.
    """

    def __init__(self, share: float, pipeline: PipelineClient, canary: PipelineClient, options: Any) -> None:
        self.comparison = CanaryComparison()
        self._share, self._clients, self._options = share, (pipeline, canary), options
        self._seen = 0
        self._free, self._adding = threading.BoundedSemaphore(AT_A_TIME), threading.Lock()
        self._threads = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="canary")

    def see(self, image: Image) -> None:
        """Take notice of one image of the run."""
        place, self._seen = self._seen, self._seen + 1
        if is_sampled(place, self._share):
            self._free.acquire()
            self._threads.submit(self._compare, image, place).add_done_callback(self._done)

    def wait(self) -> None:
        self._threads.shutdown()

    def _compare(self, image: Image, place: int) -> None:
        order = (0, 1) if place % 2 else (1, 0)
        answers = {which: self._ask(self._clients[which], image) for which in order}
        with self._adding:
            self.comparison.add(*answers[0], *answers[1])

    def _ask(self, client: PipelineClient, image: Image) -> tuple[ImageResult, float]:
        """The result and the milliseconds that it took."""
        started = time.perf_counter()
        try:
            result = client.classify(image, self._options.top_k, self._options.threshold)
        except ClassificationError as error:
            result = ImageResult([], error)
        return result, 1000 * (time.perf_counter() - started)

    def _done(self, future: "Future[None]") -> None:
        self._free.release()


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("comparing with `pipeline_canary`, the next version, where the server has one")
    group.add_argument(
        "--canary",
        type=share,
        metavar="SHARE",
        help="of the images, 0 to 1, evenly spread: ask both about them too, and report how the answers compare; the "
        "results stay those of `pipeline`",
    )
    group.add_argument("--canary-report", type=Path, metavar="FILE.json", help="write that report there too")


@contextlib.contextmanager
def open_canary(options: argparse.Namespace, pipeline: PipelineClient) -> Iterator[Canary | None]:
    """None where no share is asked for; tells on standard error, at the end, what was found."""
    if options.canary is None:
        if options.canary_report:
            raise UsageError("--canary-report: expected --canary SHARE with it, got none")
        yield None
        return
    if options.canary_report and not options.canary_report.parent.is_dir():
        raise UsageError(f"--canary-report: expected a file in a folder that exists, got {options.canary_report}")
    with open_client(options, max_retries=0, kind=CanaryClient) as client:
        expect_canary(client)
        canary = Canary(options.canary, pipeline, client, options)
        try:
            yield canary
        finally:
            canary.wait()
        print(canary.comparison, file=sys.stderr)
        if options.canary_report:
            options.canary_report.write_text(json.dumps(canary.comparison.as_json(), indent=2) + "\n", "utf-8")


def expect_canary(client: PipelineClient) -> None:
    """Raises UsageError where the server has none, or is away; a proxy that does not tell may let inference through."""
    try:
        client.control(model_config(CANARY))
    except (NotServedError, UnavailableError) as error:
        raise UsageError(
            f"--canary: expected a server with `{CANARY}`, got none at {client.url}: `python -m server deploy DIR "
            "--canary` starts one"
        ) from error
    except ClassificationError:
        return


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text}")
    return value
