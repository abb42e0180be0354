"""`python -m tests.chaos`: what becomes of good traffic while the service is harmed.

The service is the launcher with all that belongs to it, of efficientnet_lite0 with trained weights; each group of
faults has one of its own. 16 requests are in flight all the time: 12 by tritonclient and http.client, which do not try
again, 4 by the project's client, which does.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.running import make_output, run_measurement
from server.installation import ROOT

from .bench import RECIPE, Bench
from .connections import bad_clients, uploads
from .deployment import corrupt_files
from .fault import Fault, Row, observe
from .images import hostile_images
from .load import Load
from .malformed import bad_requests
from .memory import OWN_SHARED_MEMORY_MB, full_shared_memory, out_of_memory
from .overload import overload
from .processes import kills, stops, triton_killed
from .service import Service
from .table import table

OUTPUT = ROOT / "build" / "chaos"
REPORT = "chaos.md"
EXIT_MISSED = 1
QUICK_SLACK = 3  # in CI other tests run at the same time

Faults = Callable[[Service, bool], Iterable[Fault]]


@dataclass(frozen=True)
class Group:
    """Faults that one service goes through, one after the other."""

    faults: Sequence[Faults]
    shared_memory_mb: int | None = None  # of a /dev/shm of its own


HARMLESS = (bad_requests, hostile_images, bad_clients, uploads)
FULL = (
    Group([kills]),
    Group([stops]),
    Group([out_of_memory, corrupt_files, *HARMLESS]),
    Group([full_shared_memory], OWN_SHARED_MEMORY_MB),
    Group([triton_killed]),
)
QUICK = (Group([kills, stops, *HARMLESS]),)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return run_measurement(lambda: measure(options))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Harm the service in many ways under good traffic, and count what becomes of it.",
        epilog="Exit status: 0 everything held; 1 something did not, or it failed; 2 wrong usage.",
    )
    result.add_argument("--quick", action="store_true", help=f"a minute of it, with limits {QUICK_SLACK} times as long")
    result.add_argument("--only", metavar="WORD", help="faults in whose name this stands")
    result.add_argument(
        "--model-repository",
        type=Path,
        metavar="DIR",
        help=f"of {RECIPE}, with trained weights (default: exported now)",
    )
    result.add_argument(
        "--output", type=Path, default=OUTPUT, metavar="DIR", help="for the table (default: %(default)s)"
    )
    return result


def measure(options: argparse.Namespace) -> int:
    make_output(options.output, [REPORT])
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        bench = Bench(Path(folder), options.model_repository)
        rows = []
        for row in every_row(bench, options.quick, options.only):
            rows.append(row)
            show(row)
    report = table(rows) + "".join(f"\n\n{note}" for row in rows for note in row.notes)
    (options.output / REPORT).write_text(report + "\n", "utf-8")
    missed = sum(bool(row.misses) for row in rows)
    print(
        f"\n{report}\n\n{len(rows)} faults in {time.monotonic() - began_s:.0f} s, {missed} of them with a limit missed"
    )
    return EXIT_MISSED if missed or not rows else 0


def every_row(bench: Bench, quick: bool, only: str | None) -> Iterator[Row]:
    for group in QUICK if quick else FULL:
        yield from rows_of(bench, group, quick, only)
    if not quick and (only is None or only in "overload"):
        with bench.service() as service:
            yield overload(service, bench.photos[0])


def rows_of(bench: Bench, group: Group, quick: bool, only: str | None) -> Iterator[Row]:
    """After a fault that it does not get over the service is started anew, for the next one."""
    service = bench.service(group.shared_memory_mb)
    try:
        faults = [fault for faults in group.faults for fault in faults(service, quick)]
        for fault in faults:
            if only is not None and only not in fault.name:
                continue
            with Load(service.options, bench.photos) as load:
                row = observe(fault, service, load, QUICK_SLACK if quick else 1)
            if row.whole_again_s is None:
                row.notes.append(f"After {fault.name}, the launcher said:\n{service.said()}")
                service.stop()
                service = bench.service(group.shared_memory_mb)
            yield row
    finally:
        left = service.stop()
    if left:
        yield Row(fault="the stop after that", misses=left)


def show(row: Row) -> None:
    """What there is to say at once; the table comes at the end."""
    whole = "not whole again" if row.whole_again_s is None else f"whole again after {row.whole_again_s:.1f} s"
    print(f"{row.fault}: {whole}; good traffic {row.steady}; its client {row.client}", end="")
    print(f"; its own requests {row.own}" if row.own else "", flush=True)
    for miss in row.misses:
        print(f"  MISSED: {miss[:1000]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
