"""`python -m tests.soak`: mixed traffic for half an hour, and the memory of every process meanwhile.

The service is the launcher with all that belongs to it, of efficientnet_lite0 with trained weights.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.running import make_output, run_measurement
from server.installation import ROOT
from tests.chaos.bench import RECIPE, Bench
from tests.chaos.service import Service

from .memory import MAX_GROWTH, SAMPLE_S, WARM_S, WINDOW_S, Sample, Sampler, growths, write_csv
from .plot import draw
from .traffic import Traffic, kinds

OUTPUT = ROOT / "build" / "soak"
CSV, PLOT = "soak.csv", "soak.png"
LEAST_MINUTES = (WARM_S + 2 * WINDOW_S) / 60
EXIT_MISSED = 1


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Ask the service for everything, for a long time, and see whether its memory grows.",
        epilog="Exit status: 0 everything held; 1 something did not, or it failed; 2 wrong usage.",
    )
    result.add_argument("--minutes", type=minutes, default=30, metavar="N", help="default: %(default)s")
    result.add_argument("--seed", type=int, default=0, help="of the order of requests (default: %(default)s)")
    result.add_argument("--model-repository", type=Path, metavar="DIR", help=f"of {RECIPE} (default: exported now)")
    result.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help="default: %(default)s")
    return result


def minutes(text: str) -> float:
    value = float(text)
    if not value >= LEAST_MINUTES:
        raise argparse.ArgumentTypeError(f"expected at least {LEAST_MINUTES:g}, got {text}")
    return value


def measure(options: argparse.Namespace) -> int:
    make_output(options.output, [CSV, PLOT])
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        bench = Bench(Path(folder), options.model_repository)
        service = bench.service()
        try:
            traffic, samples = soak(bench, service, options)
        finally:
            left = service.stop()
    write_csv(samples, options.output / CSV)
    subtitle = f"{options.minutes:g} minutes, {sum(tally.sent for tally in traffic.tallies.values())} requests"
    draw(samples, subtitle, options.output / PLOT)
    return report(traffic, samples, left)


def soak(bench: Bench, service: Service, options: argparse.Namespace) -> tuple[Traffic, list[Sample]]:
    wanted = kinds(service, bench.photos)
    with Traffic(wanted, options.seed) as traffic, Sampler(service) as sampler:
        ends_s = time.monotonic() + 60 * options.minutes
        while (left_s := ends_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 60))
            sent = sum(tally.sent for tally in traffic.tallies.values())
            print(f"{max(0, ends_s - time.monotonic()) / 60:.0f} min left, {sent} requests", flush=True)
    return traffic, sampler.samples


def report(traffic: Traffic, samples: list[Sample], left: list[str]) -> int:
    for name, tally in traffic.tallies.items():
        print(f"{name:<16} {tally}; the longest took {tally.longest_s:.1f} s")
    found = growths(samples)
    print(f"\nresident memory, medians of a minute: after {WARM_S} s, at the end (every {SAMPLE_S} s)")
    print("\n".join(map(str, found)))
    misses = traffic.misses()
    misses += [
        f"{each.process}: grew by {each.share:.1%}, at most {MAX_GROWTH:.0%} expected"
        for each in found
        if not each.held
    ]
    misses += [f"left behind after the stop: {each}" for each in left]
    print("\n".join(f"MISSED: {miss}" for miss in misses) or "\neverything held; nothing left in /dev/shm")
    return EXIT_MISSED if misses or not found else 0


if __name__ == "__main__":
    sys.exit(main())
