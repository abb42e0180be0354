"""Resident memory over time, drawn: a line a process."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.perf.plot import FAINT, TEXT, TITLE, frame

from .memory import WARM_S, Sample

# Okabe and Ito's palette
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(samples: Sequence[Sample], subtitle: str, path: Path) -> None:
    """Write the PNG."""
    figure = Figure(figsize=(9, 5.5), facecolor="white")
    figure.text(0.08, 0.94, "Memory under mixed traffic", fontsize=17, fontweight="bold", color=TEXT)
    figure.text(0.08, 0.9, subtitle, fontsize=10, color=TEXT)
    axes = figure.add_axes((0.08, 0.1, 0.66, 0.7))
    names = sorted({sample.process for sample in samples})
    for number, name in enumerate(names):
        own = [sample for sample in samples if sample.process == name]
        minutes, mb = [sample.seconds / 60 for sample in own], [sample.mb for sample in own]
        axes.plot(minutes, mb, color=COLOURS[number % len(COLOURS)], linewidth=1.5, label=name)
    axes.axvline(WARM_S / 60, color=FAINT, linewidth=1.5, zorder=0)
    axes.set_title("resident memory, MB", loc="left", **TITLE)
    axes.set_xlabel("minutes; from the line on it must not grow", color=TEXT)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.grid(color=FAINT, linewidth=0.8)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, labelcolor=TEXT)
    frame(axes)
    figure.savefig(path, dpi=150)
