"""`python -m benchmarks.comparison`: every way to serve, side by side, on the same images and the same machine.

The ensemble, gateways in front of Triton, other servers, clients that preprocess, and bare processes: all are started
once a network, checked against the reference, and then loaded in turns, in several rounds. Written are a table with
the targets, a CSV and a plot.
"""

import argparse
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.running import make_output, positive, run_measurement
from server.installation import ROOT

from .comparison import Plan, compare
from .plot import draw
from .ratios import Run
from .report import report
from .rounds import FULL, QUICK
from .serving import NAMES
from .targets import targets

CSV, PLOT, REPORT = "comparison.csv", "comparison.png", "comparison.md"


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options))


def measure(options: argparse.Namespace) -> int:
    output = options.output
    make_output(output, (CSV, PLOT, REPORT))
    schedule = QUICK if options.quick else FULL
    if options.rounds:
        schedule = replace(schedule, rounds=options.rounds)
    plan = Plan(
        images=options.images,
        weights=options.weights,
        only=options.only,
        schedule=schedule,
        csv=output / CSV,
        logs=output,
    )
    measurements, ready_s = compare(plan)
    run = Run(measurements)
    subtitle = (
        f"{os.cpu_count()} CPUs {platform.machine()}, {schedule.rounds} rounds by turns, each measurement "
        f"{schedule.duration.window_s:g} s or longer after {schedule.duration.warm_up_s:g} s of warm-up"
    )
    text = report(run, targets(run, ready_s), ready_s, subtitle)
    (output / REPORT).write_text(text, "utf-8")
    draw(run, subtitle, output / PLOT)
    print(f"\n{text}\nwrote {', '.join(str(output / name) for name in (REPORT, CSV, PLOT))}")
    return 0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison",
        description="Compare the ensemble with gateways, other servers, clients that preprocess, and bare processes.",
        epilog="Exit status: 0 measured, whatever the result; 1 failed; 2 wrong usage.",
    )
    result.add_argument(
        "images",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="default: scikit-image's photographs, as JPEG of several sizes",
    )
    result.add_argument(
        "--weights",
        default="pretrained",
        metavar="W",
        help="of ResNet-50, as for `python -m export model` (default: %(default)s)",
    )
    result.add_argument("--quick", action="store_true", help="5 minutes rather than 40: one round of short loads")
    result.add_argument(
        "--rounds", type=positive, metavar="N", help=f"default: {FULL.rounds}, with --quick {QUICK.rounds}"
    )
    result.add_argument(
        "--only",
        type=words_of_a_name,
        action="append",
        default=[],
        metavar="WORDS",
        help="measure only contenders with these words in their name; may be given several times",
    )
    result.add_argument(
        "--output", type=Path, default=ROOT / "build" / "bench", metavar="DIR", help="default: build/bench"
    )
    return result


def words_of_a_name(text: str) -> str:
    if not any(text in name for name in NAMES):
        raise argparse.ArgumentTypeError(f"expected words of one of {'; '.join(NAMES)}, got {text}")
    return text


if __name__ == "__main__":
    sys.exit(main())
