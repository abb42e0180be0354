"""`status`: whether a server and its models are ready, and what they have done since they were loaded."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..administration import Model, ServerStatus, Statistics, as_json, read_status
from ..errors import ClassificationError
from .columns import columns, number
from .hints import key_hint, with_hint
from .options import EXIT_FAILED, connection_options, open_client

FAILURES = (
    "Failures are Triton's count, which for a request that a step refuses is two for the ensemble (24.10) and none for "
    "that step."
)


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "status",
        parents=[connection_options()],
        help="whether all is ready, and what was done",
        description=__doc__,
        epilog=FAILURES,
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with open_client(options, max_retries=0) as client:  # a server that is away is to be told, not waited for
        try:
            status = read_status(client)
        except ClassificationError as error:
            print(with_hint(error, options.url), file=sys.stderr)
            return EXIT_FAILED
    print(json.dumps(as_json(status), indent=2) if options.format == "json" else as_table(status))
    for line in [*index_notes(status), *status.problems]:
        print(line, file=sys.stderr)
    return EXIT_FAILED if status.problems else 0


def index_notes(status: ServerStatus) -> list[str]:
    """What a restricted index leaves unknown."""
    if not status.is_index_restricted:
        return []
    return [
        "models: their index is restricted, so these are from the statistics, which have only those that are ready; "
        f"for all: {key_hint(status.url)}"
    ]


def as_table(status: ServerStatus) -> str:
    """Two tables: what each model is and did, and how long that took."""
    loaded = [(one, one.statistics) for one in status.models if one.statistics is not None]
    counts = [[*_identity(one), *_counts(one.statistics)] for one in status.models]
    times = [[indented(one), *_times(statistics)] for one, statistics in loaded]
    return "\n\n".join(
        [
            f"{status.name} {status.version} at {status.url}: {'ready' if status.is_ready else 'not ready'}",
            columns([COUNTS_HEAD, *counts], "<><>>>>"),
            f"means of a request, since the model was loaded\n{columns([TIMES_HEAD, *times], '<>>>>><')}",
        ]
    )


SHOWN_BATCH_SIZES = 5
COUNTS_HEAD = ("model", "version", "state", "answered", "failures", "images", "executions")
TIMES_HEAD = ("model", "queue ms", "input ms", "infer ms", "output ms", "batch", "executions by batch size")


def indented(model: Model) -> str:
    """The name, under the ensemble's where it is a step."""
    return f"  {model.name}" if model.ensembles else model.name


def state_of(model: Model) -> str:
    return model.state or "not loaded"


def _identity(model: Model) -> Sequence[str]:
    return indented(model), model.version or "-", state_of(model)


def _counts(statistics: Statistics | None) -> Sequence[str]:
    if statistics is None:
        return ["-"] * 4
    counts = (
        statistics.success_count,
        statistics.failure_count,
        statistics.image_count,
        statistics.execution_count,
    )
    return [f"{count:,}" for count in counts]


def _times(statistics: Statistics) -> Sequence[str]:
    means = (
        statistics.queue_ms,
        statistics.input_ms,
        statistics.infer_ms,
        statistics.output_ms,
        statistics.mean_batch_size,
    )
    return [*map(number, means), batch_sizes(statistics.executions_by_batch_size)]


def batch_sizes(executions: Mapping[int, int]) -> str:
    """The batch sizes that were executed most often, in order of size, and the executions of the others.

    >>> batch_sizes({1: 30, 2: 6, 3: 5, 4: 8, 5: 2, 6: 1, 8: 1200})
    '1: 30, 2: 6, 3: 5, 4: 8, 8: 1,200, others: 3'
    """
    most = sorted(executions, key=lambda size: -executions[size])[:SHOWN_BATCH_SIZES]
    others = sum(executions.values()) - sum(executions[size] for size in most)
    shown = [f"{size}: {executions[size]:,}" for size in sorted(most)]
    return ", ".join([*shown, f"others: {others:,}"] if others else shown)
