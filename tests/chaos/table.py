"""The rows, as Markdown that reads well at a terminal too."""

from collections.abc import Iterable, Sequence

from .fault import Row
from .load import Outcome, Tally

HEAD = (
    *("fault", "sent", "answered", "refused", "failed", "lost", "wrong", "longest s"),
    *("client's images", "without result", "the fault's own requests", "whole again after s", "verdict"),
)
NUMBERS = range(1, 10)
SHOWN = (Outcome.ANSWERED, Outcome.REFUSED, Outcome.FAILED, Outcome.LOST, Outcome.WRONG)


def table(rows: Iterable[Row]) -> str:
    cells = [HEAD, *(cells_of(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [[aligned(*each) for each in zip(range(len(HEAD)), line, widths, strict=True)] for line in cells]
    rule = [f"{'-' * (width - 1)}:" if number in NUMBERS else "-" * width for number, width in enumerate(widths)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def aligned(column: int, cell: str, width: int) -> str:
    return cell.rjust(width) if column in NUMBERS else cell.ljust(width)


def cells_of(row: Row) -> Sequence[str]:
    unanswered = row.client.sent - row.client.counts[Outcome.ANSWERED]
    return (
        row.fault,
        *counts(row.steady),
        *((str(row.client.sent), str(unanswered)) if row.client.sent else ("", "")),
        str(row.own or ""),
        "never" if row.whole_again_s is None else f"{row.whole_again_s:.1f}",
        "MISSED" if row.misses else "held",
    )


def counts(steady: Tally) -> Sequence[str]:
    """REJECTED counts as failed: good traffic is none of its caller's fault."""
    if not steady.sent:
        return ("",) * 7
    numbers = [steady.counts[outcome] for outcome in SHOWN]
    numbers[2] += steady.counts[Outcome.REJECTED]
    return (str(steady.sent), *map(str, numbers), f"{steady.longest_s:.1f}")
