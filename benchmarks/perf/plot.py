"""The measurements of the pipeline, drawn: throughput against latency, and where the time goes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from .measurement import Measurement
from .report import OUTSIDE, PROTOCOL_NAMES
from .server_statistics import ENSEMBLE

# Okabe and Ito's palette, which colour-blind people can tell apart: jfly.uni-koeln.de/color
PROTOCOL_COLOURS = {"grpc": "#0072B2", "http": "#D55E00"}
STEP_COLOURS = ("#56B4E9", "#E69F00", "#009E73")
OUTSIDE_COLOUR = "#C8C8C8"
MARKERS = {"grpc": "o", "http": "s"}
MARKER_SIZES = {"grpc": 13, "http": 17}  # where the protocols are equally fast, one is seen around the other
LAYERS = {"grpc": 4, "http": 3}  # both above the lines
PERCENTILES = {"p50_ms": "Median latency (p50)", "p99_ms": "99th percentile of the latency (p99)"}
TEXT, FAINT = "#333333", "#E4E4E4"
TITLE: dict[str, Any] = {"fontsize": 12, "color": TEXT}
MARKER: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 1.2}
BAR_WIDTH = 0.74
LONGEST_NAME = 20  # letters, for which there is room beside the bars
LABEL_GAP = 0.062  # between the middles of two labels, of the height of a bar


@dataclass(frozen=True)
class Segment:
    """One part of each bar: its shares of the latency, 0 to 1, by concurrency."""

    label: str
    colour: str
    hatch: str
    shares: Sequence[float]


def draw(measurements: Iterable[Measurement], subtitle: str, path: Path) -> None:
    """Draw those of the pipeline, and write the PNG."""
    pipeline = [each for each in measurements if each.model == ENSEMBLE]
    series = {name: [each for each in pipeline if each.protocol == name] for name in PROTOCOL_NAMES}
    series = {name: points for name, points in series.items() if points}
    figure = Figure(figsize=(12.5, 10), facecolor="white")
    figure.text(0.06, 0.965, "The pipeline under load", fontsize=17, fontweight="bold", color=TEXT)
    figure.text(0.06, 0.938, subtitle, fontsize=10, color=TEXT)
    upper = row_of_panels(figure, len(PERCENTILES), bottom=0.53, top=0.88)
    lower = row_of_panels(figure, len(series), bottom=0.06, top=0.42)
    draw_latencies(upper, series)
    for axes, (protocol, points) in zip(lower, series.items(), strict=True):
        draw_shares(axes, protocol, points)
    figure.savefig(path, dpi=150)


def row_of_panels(figure: Figure, count: int, bottom: float, top: float) -> list[Axes]:
    grid = figure.add_gridspec(1, count, left=0.06, right=0.985, bottom=bottom, top=top, wspace=0.12)
    return [figure.add_subplot(grid[column]) for column in range(count)]


def draw_latencies(panels: Sequence[Axes], series: dict[str, list[Measurement]]) -> None:
    """A panel a percentile, with one scale for both, and in it a line a protocol."""
    for axes, (percentile, name) in zip(panels, PERCENTILES.items(), strict=True):
        for protocol, points in series.items():
            draw_line(axes, protocol, points, percentile)
        label_ends(axes, series, percentile)
        axes.set_title(f"{name}, ms", loc="left", **TITLE)
        axes.set_xlabel("throughput, images/s; in the markers: requests in flight", color=TEXT)
        scale_latencies(axes)
    values = [getattr(each, name) for points in series.values() for each in points for name in PERCENTILES]
    fastest = max(each.images_per_s for points in series.values() for each in points)
    for axes in panels:
        axes.set_xlim(0, 1.15 * fastest)
        axes.set_ylim(0.6 * min(values), 1.7 * max(values))


def scale_latencies(axes: Axes) -> None:
    """Logarithmic, with plain numbers, and a grid."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(color=FAINT, linewidth=0.8)
    frame(axes)


def draw_line(axes: Axes, protocol: str, points: Sequence[Measurement], percentile: str) -> None:
    x, y = [each.images_per_s for each in points], [getattr(each, percentile) for each in points]
    axes.plot(x, y, color=PROTOCOL_COLOURS[protocol], linewidth=2, zorder=2)
    look: dict[str, Any] = {
        "color": PROTOCOL_COLOURS[protocol],
        "marker": MARKERS[protocol],
        "markersize": MARKER_SIZES[protocol],
    }
    axes.plot(x, y, zorder=LAYERS[protocol], **look, **MARKER)
    for each, latency_ms in zip(points, y, strict=True):
        axes.annotate(
            str(each.concurrency),
            (each.images_per_s, latency_ms),
            color="white",
            fontsize=8,
            fontweight="bold",
            ha="center",
            va="center_baseline",
            zorder=LAYERS[protocol] + 0.5,
        )


def label_ends(axes: Axes, series: dict[str, list[Measurement]], percentile: str) -> None:
    """The protocol's name at the end of its line: to the right of the faster one, to the left of the other."""
    ordered = sorted(series.items(), key=lambda item: item[1][-1].images_per_s, reverse=True)
    places = [((13, 0), "left"), ((-13, 0), "right")] if len(series) > 1 else [((0, 16), "center")]
    for (protocol, points), (offset, alignment) in zip(ordered, places, strict=True):
        axes.annotate(
            PROTOCOL_NAMES[protocol],
            (points[-1].images_per_s, getattr(points[-1], percentile)),
            xytext=offset,
            textcoords="offset points",
            color=PROTOCOL_COLOURS[protocol],
            fontsize=11,
            fontweight="bold",
            ha=alignment,
            va="center_baseline",
        )


def draw_shares(axes: Axes, protocol: str, points: Sequence[Measurement]) -> None:
    """A bar a concurrency, of the shares of its mean latency, which stands above it."""
    bottoms = np.zeros(len(points))
    middles = []
    parts = segments(points)
    for part in parts:
        axes.bar(
            range(len(points)),
            part.shares,
            BAR_WIDTH,
            bottoms,
            color=part.colour,
            hatch=part.hatch,
            edgecolor="white",
            linewidth=0.6,
        )
        middles.append(bottoms[-1] + part.shares[-1] / 2)
        bottoms = bottoms + part.shares
    for number, each in enumerate(points):
        axes.text(number, 1.02, milliseconds(each.mean_ms), ha="center", fontsize=9, color=TEXT)
    label_segments(axes, len(points) - 1 + BAR_WIDTH / 2, middles, [part.label for part in parts])
    axes.set_title(f"Where the mean latency goes, {PROTOCOL_NAMES[protocol]}", loc="left", pad=18, **TITLE)
    axes.set_xlabel("requests in flight", color=TEXT, x=0.36)
    axes.set_xticks(range(len(points)), [str(each.concurrency) for each in points])
    axes.set_xlim(-0.6, 1.5 * len(points))
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    frame(axes)
    axes.spines["bottom"].set_bounds(-0.6, len(points) - 0.4)  # not below the labels


def milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def segments(points: Sequence[Measurement]) -> list[Segment]:
    """From the bottom up: queue and computation of each step in order, then what is outside of them."""
    result = []
    for name, colour in zip(points[0].steps, STEP_COLOURS, strict=True):
        times = [each.steps[name] for each in points]
        for part, hatch, values in (
            ("queue", "////", [step.queue_ms for step in times]),
            ("compute", "", [step.compute_ms for step in times]),
        ):
            result.append(Segment(f"{shortened(name)}: {part}", colour, hatch, shares(values, points)))
    outside = shares([each.outside_ms for each in points], points)
    return [*result, Segment(OUTSIDE, OUTSIDE_COLOUR, "", outside)]


def shares(values_ms: Iterable[float], points: Iterable[Measurement]) -> list[float]:
    return [value / each.accounted_ms for value, each in zip(values_ms, points, strict=True)]


def shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def label_segments(axes: Axes, edge: float, middles: Sequence[float], labels: Sequence[str]) -> None:
    """Beside the last bar, each with a line to its part, moved apart where they would overlap."""
    for middle, height, label in zip(middles, spread(middles, LABEL_GAP), labels, strict=True):
        axes.plot([edge, edge + 0.15, edge + 0.45], [middle, middle, height], color="#888888", linewidth=0.8)
        axes.text(edge + 0.52, height, label, va="center", fontsize=9, color=TEXT)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The rising `heights`, 0 to 1, at least `gap` apart: moved up where they must be, then down from the top."""
    result: list[float] = []
    for height in heights:
        result.append(max(height, result[-1] + gap) if result else height)
    top = 1.0
    for number in reversed(range(len(result))):
        result[number] = min(result[number], top)
        top = result[number] - gap
    return result


def frame(axes: Axes) -> None:
    """Only the axes themselves, no box around."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(colors=TEXT)
