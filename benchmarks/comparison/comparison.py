"""The whole run: one network after the other, each with all its contenders."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.images import served_images, write_photos_of_several_sizes
from benchmarks.perf_analyzer import PerfAnalyzer, find_perf_analyzer, write_input_data
from export.calibration import evenly_spaced
from server.process import TritonServer

from .answers import check_answers
from .contenders import Contender
from .environment import make_environment
from .exports import NETWORKS, Network, export_network
from .figures import Measurement
from .load.generator import Generator, start
from .others import OTHERS
from .report import write_csv
from .requests import ENCODINGS
from .rounds import Progress, Schedule, measure_rounds
from .serving import HAND_OVERS, Sent, ensembles, start_in_process, start_others, start_triton

MOST_FILES = 64  # the generators hold all of them in memory, in each form
CHECKED_FILES = 8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be measured, and where it is written."""

    images: Path | None  # folder; None for scikit-image's photographs
    weights: str
    only: Sequence[str]  # words of the names of contenders; none for all
    schedule: Schedule
    csv: Path
    logs: Path  # folder

    def is_wanted(self, name: str) -> bool:
        return not self.only or any(words in name for words in self.only)


def compare(plan: Plan) -> tuple[list[Measurement], dict[str, float]]:
    """Return the measurements, and the seconds that each Triton took to be ready.

    What was measured is in the CSV however the run ends. Raises BenchmarkError.
    """
    measurements: list[Measurement] = []
    ready_s: dict[str, float] = {}
    progress = Progress()
    try:
        for each in measure_networks(plan, ready_s, progress):
            measurements.append(each)
            write_csv(measurements, plan.csv)
    finally:
        if len(measurements) < progress.total:
            print(f"\n{len(measurements)} of {progress.total} measurements were made: {plan.csv}", file=sys.stderr)
    if not measurements:
        raise BenchmarkError("expected something to measure, got nothing: the messages are above")
    return measurements, ready_s


def measure_networks(plan: Plan, ready_s: dict[str, float], progress: Progress) -> Iterator[Measurement]:
    """Fill `ready_s` besides, with the seconds of each start of Triton."""
    analyzer = perf_analyzer_or_none()
    sent: Sent | None = None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        [generator] = start(stack, "http")
        for name in NETWORKS:
            network = export_network(name, plan.weights, folder / name)
            with ExitStack() as servers:
                tritons = {}
                for hand_over, repository in network.repositories.items():
                    log = plan.logs / f"{name}-triton-{hand_over}.log"
                    tritons[hand_over], seconds = start_triton(servers, repository, log)
                    ready_s[f"{name}, {HAND_OVERS[hand_over]}"] = seconds
                sent = sent or write_images(plan.images, tritons["normalized"].options.grpc_url, folder)
                contenders = start_contenders(servers, plan, network, tritons, generator, analyzer, sent)
                check_answers(contenders, evenly_spaced(list(sent.files), CHECKED_FILES), network.model)
                progress.total = len(NETWORKS) * plan.schedule.loads(contenders)
                yield from measure_rounds(name, contenders, plan.schedule, progress)


def perf_analyzer_or_none() -> PerfAnalyzer | None:
    try:
        return find_perf_analyzer()
    except BenchmarkError as error:
        print(f"{error}\nthe ensemble over gRPC is left out", file=sys.stderr)
        return None


def write_images(images: Path | None, url: str, folder: Path) -> Sent:
    """Choose the images that the Triton at `url` takes, and write them into `folder` in every form."""
    if images is None:
        images = folder / "photos"
        images.mkdir()
        write_photos_of_several_sizes(images)
    files = served_images(url, images, MOST_FILES)
    own = folder / "images"
    own.mkdir()
    for number, file in enumerate(files):
        (own / f"{number:04}{file.suffix}").write_bytes(file.read_bytes())
    return Sent(
        files=files,
        folder=own,
        requests={encoding.name: encoding.write(files, folder) for encoding in ENCODINGS},
        inputs=write_input_data(files, folder / "input.json"),
    )


def start_contenders(
    stack: ExitStack,
    plan: Plan,
    network: Network,
    tritons: dict[str, TritonServer],
    generator: Generator,
    analyzer: PerfAnalyzer | None,
    sent: Sent,
) -> list[Contender]:
    """Those that are wanted."""
    triton = tritons["normalized"]  # behind the gateways, and of the clients that preprocess
    others = [other for other in OTHERS if any(map(plan.is_wanted, other.encodings))]
    contenders = [*ensembles(tritons, generator, analyzer, sent)]
    contenders += start_in_process(stack, network, triton, sent, plan.is_wanted)
    if others:
        python = make_environment()
        contenders += start_others(stack, others, network, triton, python, generator, sent, plan.logs)
    return [each for each in contenders if plan.is_wanted(each.name)]
