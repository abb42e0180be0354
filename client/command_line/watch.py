"""`watch`: what the models of a server do right now, until Ctrl-C; where output is no terminal, a line an interval."""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

from ..administration import Rates
from .columns import number
from .looks import Look, looks
from .options import UsageError, connection_options, open_client, positive
from .status import FAILURES

TIMEOUT_S = 5.0  # a server that hangs is to be seen soon


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "watch", parents=[connection_options()], help="what the models do, live", description=__doc__, epilog=FAILURES
    )
    parser.add_argument("--interval-s", type=positive, default=1.0, metavar="S", help="default: %(default)s")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: %(default)s")
    parser.set_defaults(run=run, timeout_s=TIMEOUT_S)


def run(options: argparse.Namespace) -> int:
    with open_client(options, max_retries=0) as client, _display(options) as show:
        for look in looks(client, options.interval_s):
            show(look)
    return 0


def _display(options: argparse.Namespace) -> AbstractContextManager[Callable[[Look], None]]:
    if options.format == "json":
        return nullcontext(lambda look: print(as_json_line(look), flush=True))
    if not sys.stdout.isatty():
        return nullcontext(lambda look: print(as_line(look), flush=True))
    try:
        from .live import live_display
    except ImportError as error:
        raise UsageError("expected the package rich for a terminal: pip install 'triton-classify[cli]'") from error
    return live_display(options.url)


def as_line(look: Look) -> str:
    """Time, server, and each model that is ready."""
    time_text = f"{look.at:%Y-%m-%dT%H:%M:%S}"
    if look.status is None:
        return f"{time_text} away: {look.error}"
    models = [f"{name} {_in_words(rates)}" for (name, _), rates in (look.rates or {}).items()]
    return "; ".join([f"{time_text} {'; '.join(look.status.problems) or 'ready'}", *models])


def _in_words(rates: Rates) -> str:
    if not rates.images_per_s and not rates.failures_per_s:
        return "idle"
    return (
        f"{number(rates.images_per_s)} images/s, queue {number(rates.queue_ms)} ms, "
        f"compute {number(rates.compute_ms)} ms, batch {number(rates.mean_batch_size)}, "
        f"{number(rates.failures_per_s)} failures/s"
    )


def as_json_line(look: Look) -> str:
    """One object; `models` is null where the server is away, `rates` where there is nothing to compare with."""
    rates = look.rates or {}
    models = look.status and [
        {"name": one.name, "version": one.version, "state": one.state, "rates": _as_json(rates.get(one.key))}
        for one in look.status.models
    ]
    problems = [str(look.error)] if look.status is None else look.status.problems
    return json.dumps({"time": look.at.astimezone().isoformat(), "problems": problems, "models": models})


def _as_json(rates: Rates | None) -> dict[str, Any] | None:
    return None if rates is None else {**asdict(rates), "compute_ms": rates.compute_ms}
