"""The results as a table, as lists, as a verdict in one line, and as CSV."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from .comparison import LARGEST_LEVELS, MEAN_NORMALIZED, FileResult, ScoredClass, Summary, Top1, Verdict

MAX_LISTED = 20  # files under one heading; all are in the CSV
HEADINGS = ("format", "files", "decoded", "levels", "mean", "worst mean", "top-1", "ties", "refused")
CSV_COLUMNS = (
    "path",
    "format",
    "size",
    "error",
    "reference_error",
    "max_level_difference",
    "mean_normalized_difference",
    "service_class_id",
    "service_score",
    "torch_class_id",
    "torch_score",
    "verdict",
)
LISTS = {
    Verdict.NOT_MET: "outside the limits",
    Verdict.FAILED: "the service failed at",
    Verdict.REFUSED: "refused by the service though Pillow reads them",
    Verdict.NOT_READ: "read by the service though Pillow does not",
    Verdict.NO_IMAGE: "no image to either of them",
    Verdict.NOT_COMPARED: "not compared",
}


def table(results: Sequence[FileResult]) -> str:
    """One line a format, one for all: levels is the largest difference at any pixel, the means are in normalized units,
    top-1 how many of the comparable ones agree."""
    formats = sorted({result.format for result in results})
    rows = [table_row(name, Summary([result for result in results if result.format == name])) for name in formats]
    lines = [list(HEADINGS), *rows, table_row("all", Summary(results))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS) - 1)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:-1], widths[1:]), line[-1]]).rstrip()
        for line in lines
    )


def table_row(name: str, summary: Summary) -> list[str]:
    compared = (
        [f"{summary.largest_levels:.2f}", f"{summary.mean:.6f}", f"{summary.worst_mean:.6f}"]
        if summary.differences
        else ["-"] * 3
    )
    return [
        name,
        str(len(summary.results)),
        str(summary.decoded),
        *compared,
        f"{summary.count_top_1(Top1.AGREES)}/{summary.comparable_top_1}",
        str(summary.count_top_1(Top1.TIE)),
        ", ".join(f"{code} {count}" for code, count in sorted(summary.refused.items())),
    ]


def lists(results: Sequence[FileResult]) -> str:
    """The files that need a look, by what is the matter with them; empty where there are none."""
    summary = Summary(results)
    blocks = [file_list(heading, summary.with_verdict(verdict)) for verdict, heading in LISTS.items()]
    return "\n\n".join(block for block in blocks if block)


def file_list(heading: str, results: Sequence[FileResult]) -> str:
    if not results:
        return ""
    lines = [f"  {result.path}: {reason(result)}" for result in results[:MAX_LISTED]]
    rest = [f"  and {len(results) - MAX_LISTED} more, in the CSV"] if len(results) > MAX_LISTED else []
    return "\n".join([f"{heading}: {len(results)}", *lines, *rest])


def reason(result: FileResult) -> str:
    """Why a file is listed."""
    if result.verdict is Verdict.NOT_MET and result.difference:
        top_1 = f", class {shown(result.served)}, torch's {shown(result.expected)}"
        return (
            f"largest {result.difference.largest_levels:.2f} levels, mean {result.difference.mean_normalized:.6f}"
            f"{top_1 if result.top_1 is Top1.DIFFERS else ''}"
        )
    if result.verdict is Verdict.NOT_COMPARED:
        return result.not_compared
    if result.verdict is Verdict.NOT_READ:
        return result.reference_error
    return result.refusal.text if result.refusal else ""


def shown(best: ScoredClass | None) -> str:
    return f"{best.class_id} ({best.score:.4f})" if best else "none"


def verdict(results: Sequence[FileResult]) -> str:
    """The whole in one line, with the limits."""
    summary = Summary(results)
    if not summary.differences:
        return f"not met: nothing to compare in {len(results)} files"
    failed = f"; the service failed at {count}" if (count := len(summary.with_verdict(Verdict.FAILED))) else ""
    return (
        f"{Verdict.MET if summary.is_met else Verdict.NOT_MET}: {len(summary.differences)} of {len(results)} files "
        f"compared; largest difference {summary.largest_levels:.2f} levels (at most {LARGEST_LEVELS}); worst mean "
        f"{summary.worst_mean:.6f} (under {MEAN_NORMALIZED}); top-1 as torch's "
        f"{summary.count_top_1(Top1.AGREES)} of {summary.comparable_top_1} (all), besides "
        f"{summary.count_top_1(Top1.TIE)} ties{failed}"
    )


def write_csv(results: Iterable[FileResult], path: Path) -> None:
    """One row a file; names keep their bytes."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        writer.writerows(csv_row(result) for result in results)


def csv_row(result: FileResult) -> list[str]:
    difference = result.difference
    return [
        result.path,
        result.format,
        result.size,
        result.refusal.text if result.refusal else "",
        result.reference_error or result.not_compared,
        *([f"{difference.largest_levels:.4f}", f"{difference.mean_normalized:.8f}"] if difference else ["", ""]),
        *scored(result.served),
        *scored(result.expected),
        result.verdict,
    ]


def scored(best: ScoredClass | None) -> list[str]:
    return [str(best.class_id), f"{best.score:.6f}"] if best else ["", ""]
