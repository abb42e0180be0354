"""The measurements as horizontal bars: how many images, and how long one takes."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.perf.plot import FAINT, TEXT, TITLE, frame

from .figures import Group
from .ratios import Run
from .rounds import COMPARED

# Okabe and Ito's palette, which colour-blind people can tell apart: jfly.uni-koeln.de/color
COLOURS = {
    Group.ENSEMBLE: "#0072B2",
    Group.DIRECT: "#56B4E9",
    Group.TUTORIAL: "#D55E00",
    Group.PILLOW: "#E69F00",
    Group.OURS: "#009E73",
    Group.BARE: "#777777",
    Group.BARE_PILLOW: "#BBBBBB",
}
ROW_INCHES = 0.26


def draw(run: Run, subtitle: str, path: Path) -> None:
    """Draw a row of panels for each network, and write the PNG."""
    networks, names = run.networks(), run.contenders()
    height = len(networks) * (1.3 + ROW_INCHES * len(names)) + 1.4
    figure = Figure(figsize=(14, height), facecolor="white", layout="constrained")
    figure.suptitle(f"Every way to serve, side by side\n{subtitle}", fontsize=12, color=TEXT, ha="left", x=0.02)
    panels = figure.subplots(len(networks), 2, squeeze=False)
    for (left, right), network in zip(panels, networks, strict=True):
        draw_rates(left, run, network)
        draw_latencies(right, run, network)
    groups = list(dict.fromkeys(each.group for each in run.measurements))
    handles = [Patch(color=COLOURS[group], label=str(group)) for group in groups]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, labelcolor=TEXT)
    figure.savefig(path, dpi=120)


def draw_rates(axes: Axes, run: Run, network: str) -> None:
    """Bars of the medians, the fastest on top, with a line from the slowest to the fastest round."""
    names = [name for name in run.contenders() if run.of(network, name, COMPARED)]
    names.sort(key=lambda name: run.median(network, name, COMPARED, "images_per_s"))
    values = [run.values(network, name, COMPARED, "images_per_s") for name in names]
    medians = [statistics.median(each) for each in values]
    axes.barh(names, medians, color=colours(run, names))
    axes.hlines(names, [min(each) for each in values], [max(each) for each in values], color=TEXT, linewidth=1)
    label_bars(axes, medians)
    axes.set_title(f"{network}: images/s, {COMPARED} requests in flight", loc="left", **TITLE)
    dress(axes)


def draw_latencies(axes: Axes, run: Run, network: str) -> None:
    """Bars of the medians, the shortest on top, with a line to the 99th percentile."""
    names = [name for name in run.contenders() if run.of(network, name, 1)]
    names.sort(key=lambda name: -run.median(network, name, 1, "p50_ms"))
    medians = [run.median(network, name, 1, "p50_ms") for name in names]
    slow = [run.median(network, name, 1, "p99_ms") for name in names]
    axes.barh(names, medians, color=colours(run, names))
    axes.hlines(names, medians, slow, color=TEXT, linewidth=1)
    axes.plot(slow, names, "|", color=TEXT)
    label_bars(axes, medians)
    axes.set_title(f"{network}: ms of one at a time, to p99", loc="left", **TITLE)
    dress(axes)


def colours(run: Run, names: Sequence[str]) -> list[str]:
    groups = {each.contender: each.group for each in run.measurements}
    return [COLOURS[groups[name]] for name in names]


def label_bars(axes: Axes, values: Sequence[float]) -> None:
    """In the bars, at their beginning, where no line crosses the number."""
    for row, value in enumerate(values):
        axes.annotate(
            f"{value:.1f}",
            (0, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            fontweight="bold",
            color="white",
        )


def dress(axes: Axes) -> None:
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    frame(axes)
