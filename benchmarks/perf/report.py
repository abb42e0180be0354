"""The measurements as tables for a terminal and as CSV."""

import csv
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from .measurement import Measurement
from .server_statistics import ENSEMBLE, StepTimes

PROTOCOL_NAMES = {"grpc": "gRPC", "http": "HTTP"}
LOAD_COLUMNS = ("model", "protocol", "concurrency")
CLIENT_COLUMNS = ("images_per_s", "mean_ms", "p50_ms", "p90_ms", "p99_ms")
STEP_COLUMNS = ("requests", "mean_batch", "queue_ms", "compute_input_ms", "compute_infer_ms", "compute_output_ms")
CSV_COLUMNS = (*LOAD_COLUMNS, *CLIENT_COLUMNS, "step", *STEP_COLUMNS)
OUTSIDE = "outside the steps"  # in the client, the network, and Triton between them


def latency_table(measurements: Iterable[Measurement]) -> str:
    """Throughput and latency: a block for each model that was asked, a line a measurement."""
    rows: list[list[str]] = []
    for model, group in itertools.groupby(measurements, key=lambda each: each.model):
        rows += [[model, "concurrency", "images/s", "p50 ms", "p90 ms", "p99 ms"], *map(latency_row, group), [""] * 6]
    return aligned(rows[:-1])


def latency_row(each: Measurement) -> list[str]:
    figures = (each.images_per_s, each.p50_ms, each.p90_ms, each.p99_ms)
    return [PROTOCOL_NAMES[each.protocol], str(each.concurrency), *(f"{value:.1f}" for value in figures)]


def step_table(measurements: Iterable[Measurement]) -> str:
    """Where the time of the pipeline's requests goes, in ms: a block a measurement, a line a step."""
    blocks = [step_rows(each) for each in measurements if each.model == ENSEMBLE]
    return aligned([row for block in blocks for row in [*block, [""] * 8]][:-1])


def step_rows(each: Measurement) -> list[list[str]]:
    load = f"{PROTOCOL_NAMES[each.protocol]}, concurrency {each.concurrency}"
    return [
        [load, "mean batch", "queue", "input", "infer", "output", "all ms", "share"],
        *(step_row(name, step, each.accounted_ms) for name, step in each.steps.items()),
        [OUTSIDE, *[""] * 5, f"{each.outside_ms:.2f}", f"{each.outside_ms / each.accounted_ms:.0%}"],
    ]


def step_row(name: str, step: StepTimes, whole_ms: float) -> list[str]:
    computed = (step.compute_input_ms, step.compute_infer_ms, step.compute_output_ms)
    times = [f"{value:.2f}" for value in (step.queue_ms, *computed, step.all_ms)]
    return [name, f"{step.mean_batch:.1f}", *times, f"{step.all_ms / whole_ms:.0%}"]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, names to the left and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def write_csv(measurements: Iterable[Measurement], path: Path) -> None:
    """A row for each step of each measurement; one of the pipeline has three, with the same figures of the client."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS)
        writer.writeheader()
        for each in measurements:
            writer.writerows(csv_rows(each))


def csv_rows(each: Measurement) -> list[dict[str, object]]:
    client = {name: getattr(each, name) for name in (*LOAD_COLUMNS, *CLIENT_COLUMNS)}
    return [
        {**client, "step": name, **{column: getattr(step, column) for column in STEP_COLUMNS}}
        for name, step in each.steps.items()
    ]
