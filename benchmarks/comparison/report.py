"""The measurements as Markdown and as CSV."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from .figures import Measurement
from .ratios import Run
from .rounds import COMPARED
from .targets import Target

COLUMNS = [field.name for field in fields(Measurement)]


def report(run: Run, targets: Iterable[Target], ready_s: Mapping[str, float], subtitle: str) -> str:
    """The whole report, in Markdown."""
    parts = [f"# Every way to serve, side by side\n\n{subtitle}"]
    for network in run.networks():
        parts += [
            f"## {network}: images/s by requests in flight, median (lowest to highest)",
            table(run, network, rate, with_memory=True),
            f"## {network}: latency by requests in flight, ms, median / p99 (medians of the rounds)",
            table(run, network, latency, with_memory=False),
        ]
    starts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in ready_s.items())
    errors = sum(each.errors for each in run.measurements)
    parts += [
        f"## Targets, by requests in flight; the form of the ensemble that is fastest at {COMPARED} counts, the first",
        "\n".join(f"- {target}" for target in targets),
        f"Start of Triton to ready: {starts}. Answers that were errors: {errors}.",
    ]
    return "\n\n".join(parts) + "\n"


def table(run: Run, network: str, cell: Callable[[Run, str, str, int], str], *, with_memory: bool) -> str:
    names = run.contenders()
    loads = sorted({load for name in names for load in run.concurrencies(network, name)})
    memory = ["memory MB, first and last"] if with_memory else []
    rows: list[Sequence[str]] = [["", *map(str, loads), *memory], ["---", *["---:"] * (len(loads) + len(memory))]]
    for name in names:
        measured = run.concurrencies(network, name)
        cells = [cell(run, network, name, load) if load in measured else "" for load in loads]
        rows.append([name, *cells, *([memory_cell(run, network, name)] if with_memory else [])])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def rate(run: Run, network: str, name: str, concurrency: int) -> str:
    values = run.values(network, name, concurrency, "images_per_s")
    return f"{run.median(network, name, concurrency, 'images_per_s'):.1f} ({min(values):.1f} to {max(values):.1f})"


def latency(run: Run, network: str, name: str, concurrency: int) -> str:
    p50_ms, p99_ms = (run.median(network, name, concurrency, column) for column in ("p50_ms", "p99_ms"))
    return f"{p50_ms:.1f} / {p99_ms:.1f}"


def memory_cell(run: Run, network: str, name: str) -> str:
    measured = [each for each in run.measurements if (each.network, each.contender) == (network, name)]
    return f"{measured[0].memory_mb:.0f}, {measured[-1].memory_mb:.0f}"


def write_csv(measurements: Iterable[Measurement], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(map(asdict, measurements))
