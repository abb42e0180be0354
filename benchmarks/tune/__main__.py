"""`python -m benchmarks.tune [FOLDER]`: the settings with the most images/s on this machine, within a latency bound.

Candidates are served one after the other and put under load by perf_analyzer, over gRPC, one image a request. The best
is then compared with the defaults, by turns, and written as the config variant `tuned` where it is really better.
"""

import argparse
import math
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.images import served_images
from benchmarks.perf.inputs import MOST_FILES
from benchmarks.perf.server_statistics import FIRST_STEP
from benchmarks.perf_analyzer import add_window_option, find_perf_analyzer, write_input_data
from benchmarks.running import left, make_output, run_measurement, sample_photos
from export.tuned import TUNED, variant_path
from server.installation import ROOT
from server.options import ServerOptions

from .bench import Bench, Scratch, Stress
from .confirmation import LOADS, STARTS, Confirmation, confirm
from .plot import draw
from .report import trial_table, write_csv
from .search import Goal, Search, Trial
from .settings import Settings, coordinates, read_settings, write_settings

CSV, PLOT = "tune.csv", "tune.png"
BUDGET_MIN = 15  # a first round over all settings took 4 on two cores; 16 cores have twice as many, and 3 confirm
HEADROOM = 0.9  # of the bound, kept in the search: the p99 of a short measurement varies, and must hold in the next


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options))


def measure(options: argparse.Namespace) -> int:
    deadline = time.monotonic() + 60 * options.budget_min
    classifier, defaults = read_settings(options.model_repository)
    check_writable([options.model_repository / model for model in (FIRST_STEP, classifier)])
    make_output(options.output, (CSV, PLOT))
    analyzer = find_perf_analyzer()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        copy = shutil.copytree(options.model_repository, Path(folder, "model_repository"))
        scratch = Scratch(repository=copy, classifier=classifier, logs=options.output)
        with Bench(scratch) as bench:
            files = served_images(bench.serve(defaults), options.images or sample_photos(), MOST_FILES)
            what = write_input_data(files, Path(folder, "pipeline.json"))
            stress = Stress(analyzer=analyzer, what=what, window_s=options.window_s)
            trials = try_settings(bench, stress, defaults, options, deadline)
        goal = Goal(options.latency_ms)
        reference = goal.best_of(trial for trial in trials if trial.settings == defaults)
        best = in_search(goal).best_of(trials)
        conclude(reference, best, goal, scratch, stress, options.model_repository)
    return 0


def check_writable(folders: Sequence[Path]) -> None:
    """Now rather than after the search; raises BenchmarkError."""
    for folder in folders:
        if not os.access(folder, os.W_OK):
            raise BenchmarkError(f"model repository: expected a folder that can be written to, got {folder}")


def try_settings(
    bench: Bench, stress: Stress, defaults: Settings, options: argparse.Namespace, deadline: float
) -> list[Trial]:
    """Return all trials, the first of the defaults; what was tried is shown and written however the search ends."""
    trials: list[Trial] = []
    goal = Goal(options.latency_ms)

    def tried(settings: Settings, concurrency: int) -> Trial:
        number = f"trial {len(trials) + 1}, {left(max(0, deadline - time.monotonic()))}"
        print(f"{number}: {settings}; {concurrency} in flight", end=" ... ", flush=True)
        trial = bench.measure(stress, settings, concurrency)
        print(trial, flush=True)
        if trial.problem and not trials:
            raise BenchmarkError(f"the defaults: expected them to be measured, got: {trial.problem}")
        trials.append(trial)
        write_csv(trials, goal, options.output / CSV)
        return trial

    def time_is_left() -> bool:
        return time.monotonic() + bench.expected_s(1 + STARTS, 1 + LOADS) < deadline

    try:
        search = Search(in_search(goal), tried, time_is_left)
        search.run(defaults, coordinates(defaults, len(os.sched_getaffinity(0))))
    finally:
        if trials:
            show(trials, goal, defaults, options.output)
    return trials


def in_search(goal: Goal) -> Goal:
    return Goal(HEADROOM * goal.latency_ms)


def show(trials: Sequence[Trial], goal: Goal, defaults: Settings, output: Path) -> None:
    best = in_search(goal).best_of(trials)
    bound = "" if math.isinf(goal.latency_ms) else f", bound {goal.latency_ms:g} ms"
    machine = f"{os.cpu_count()} CPUs {platform.machine()}"
    draw(trials, goal, defaults, best, f"{len(trials)} trials, {machine}{bound}", output / PLOT)
    print(
        f"\n{trial_table(trials, goal, defaults, best)}\n\nwrote {shown(output / CSV)} and {shown(output / PLOT)}",
        flush=True,
    )


def conclude(reference: Trial, best: Trial, goal: Goal, scratch: Scratch, stress: Stress, repository: Path) -> None:
    """Write `best` where it is better than the defaults, whose best trial is `reference`; else say why not."""
    if not goal.is_met(best.p99_ms):
        reason = f"nothing that was tried keeps p99 within {goal.latency_ms:g} ms; nearest: {best}"
    elif best.settings == reference.settings:
        reason = f"nothing that was tried is better than the defaults: {best}"
    else:
        print(f"\nThe best by turns with the defaults: {best.settings}; {best.concurrency} in flight", flush=True)
        confirmation = confirm(reference, best, goal, scratch, stress)
        reason = confirmation.objection(goal)
        print(f"\n{confirmation}")
    if reason:
        earlier = any(repository.glob(str(variant_path(Path("*"), TUNED))))
        print(f"\n{reason}\nno variant is written{'; an earlier one stays' if earlier else ''}")
        return
    write_settings(best.settings, repository, scratch.classifier, TUNED, heading(confirmation, best, goal))
    print(f"wrote the variant {TUNED}; to serve it:")
    print(f"python -m server --model-repository {shown(repository)} -- --model-config-name={TUNED}")


def heading(confirmation: Confirmation, best: Trial, goal: Goal) -> list[str]:
    """The comments of the variant: where it is from, and what it is for."""
    bound = "no bound of the latency" if math.isinf(goal.latency_ms) else f"p99 of at most {goal.latency_ms:g} ms"
    return [
        f"Written by `make tune` from ../config.pbtxt; for tritonserver --model-config-name={TUNED}",
        f"Tuned for {bound}, on {os.cpu_count()} CPUs {platform.machine()}; {best.concurrency} requests in flight",
        f"Confirmed: {confirmation}",
    ]


def shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.tune",
        description="Find the instances, threads, batches and delays with the most images/s on this machine.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument("images", nargs="?", type=Path, metavar="FOLDER", help="default: scikit-image's photographs")
    result.add_argument(
        "--model-repository",
        type=Path,
        default=ServerOptions().repository,
        metavar="DIR",
        help=f"the one that is tuned; gets the variant {TUNED} (default: %(default)s)",
    )
    result.add_argument(
        "--latency-ms",
        type=positive_number,
        default=math.inf,
        metavar="MS",
        help="bound of p99, as a client on this machine sees it (default: none)",
    )
    result.add_argument(
        "--budget-min", type=positive_number, default=BUDGET_MIN, metavar="MIN", help="default: %(default)s"
    )
    add_window_option(result)
    result.add_argument(
        "--output", type=Path, default=ROOT / "build" / "tune", metavar="DIR", help="default: build/tune"
    )
    return result


def positive_number(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
