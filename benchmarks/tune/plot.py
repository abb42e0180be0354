"""What was tried, drawn: throughput against latency, every trial a point."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.perf.plot import FAINT, MARKER, TEXT, TITLE, scale_latencies

from .search import Goal, Trial
from .settings import Settings

# Okabe and Ito's palette, as in perf
DEFAULTS, BEST, BOUND = "#0072B2", "#D55E00", "#009E73"
OTHERS = "#B8B8B8"


def draw(trials: Sequence[Trial], goal: Goal, defaults: Settings, best: Trial, subtitle: str, path: Path) -> None:
    """Write the PNG; of trials that failed nothing is drawn."""
    measured = [trial for trial in trials if not trial.problem]
    figure = Figure(figsize=(9, 6.5), facecolor="white")
    figure.text(0.08, 0.945, "Settings that were tried", fontsize=17, fontweight="bold", color=TEXT)
    figure.text(0.08, 0.91, subtitle, fontsize=10, color=TEXT)
    axes = figure.add_axes((0.08, 0.09, 0.89, 0.74))
    draw_points(axes, measured, OTHERS, "other settings", size=8)
    if best.settings != defaults:
        draw_points(axes, of(measured, best.settings), BEST, "the best settings", line=True)
    draw_points(axes, of(measured, defaults), DEFAULTS, "defaults", line=True)
    axes.plot(
        best.images_per_s,
        best.p99_ms,
        marker="*",
        markersize=24,
        color=BEST,
        label="the best trial",
        zorder=5,
        **MARKER,
    )
    scale_latencies(axes)
    draw_bound(axes, goal)
    axes.set_xlim(left=0)
    axes.set_title("99th percentile of the latency (p99), ms", loc="left", **TITLE)
    axes.set_xlabel("throughput, images/s; beside the markers: requests in flight", color=TEXT)
    axes.legend(loc="upper left", frameon=True, edgecolor=FAINT, labelcolor=TEXT, labelspacing=0.7, markerscale=0.7)
    figure.savefig(path, dpi=150)


def of(trials: Sequence[Trial], settings: Settings) -> list[Trial]:
    return sorted((trial for trial in trials if trial.settings == settings), key=lambda trial: trial.concurrency)


def draw_points(
    axes: Axes, trials: Sequence[Trial], colour: str, label: str, size: float = 10, line: bool = False
) -> None:
    """With a line through trials of the same settings, and at each the requests in flight."""
    x, y = [trial.images_per_s for trial in trials], [trial.p99_ms for trial in trials]
    if line:
        axes.plot(x, y, color=colour, linewidth=1.5, zorder=3)
        for trial in trials:
            place = (trial.images_per_s, trial.p99_ms)
            axes.annotate(str(trial.concurrency), place, (9, -9), textcoords="offset points", color=colour, fontsize=8)
    axes.plot(x, y, marker="o", markersize=size, color=colour, label=label, zorder=4 if line else 2, **MARKER)


def draw_bound(axes: Axes, goal: Goal) -> None:
    if not math.isinf(goal.latency_ms):
        axes.axhline(goal.latency_ms, color=BOUND, linewidth=1.5, linestyle="--", label=f"{goal.latency_ms:g} ms")
