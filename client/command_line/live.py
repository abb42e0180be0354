"""The picture that `watch` draws on a terminal, with rich."""

import contextlib
import signal
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..administration import NEVER_LOADED, READY, Key, Model, Rates
from .columns import number
from .looks import Look
from .status import indented, index_notes, state_of

LEVELS = "▁▂▃▄▅▆▇█"
SPARKLINE = 16  # characters, one an interval
OTHERS = 58  # columns of a terminal that all takes but the models' names and the bars of times
SHORTEST_BAR = 10
PARTS = (("queue", "yellow"), ("input", "blue"), ("infer", "green"), ("output", "magenta"))


@contextlib.contextmanager
def live_display(url: str) -> Iterator[Callable[[Look], None]]:
    """Yields what shows a look; on the way out the terminal is as it was before, under the last picture."""
    console, picture = Console(), Picture(url)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # else the cursor would stay hidden
    with Live(console=console, auto_refresh=False) as live:
        yield lambda look: live.update(picture.draw(look, console.width), refresh=True)


class Picture:
    """Remembers what is drawn besides the last look: images/s so far, and the models of a server that is away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._models: Sequence[Model] = ()
        self._history: defaultdict[Key, deque[float | None]] = defaultdict(_no_history)
        self._away_since: datetime | None = None

    def draw(self, look: Look, width: int) -> RenderableType:
        """The picture after a look, for a terminal of `width` columns."""
        self._remember(look)
        room = width - OTHERS - max((len(indented(one)) for one in self._models), default=0)
        return Group(self._head(look), Text(), self._table(look, room), Text(), *_foot(look, room))

    def _remember(self, look: Look) -> None:
        if look.status is not None:
            self._models, self._away_since = look.status.models, None
        else:
            self._away_since = self._away_since or look.at
        for model in self._models:
            rates = (look.rates or {}).get(model.key)
            self._history[model.key].append(None if rates is None else rates.images_per_s)

    def _head(self, look: Look) -> Text:
        if look.status is None:
            assert self._away_since is not None
            since = f"since {self._away_since:%H:%M:%S}  "
            return Text.assemble(("● away ", "bold red"), since, self._url, "\n", (str(look.error), "red"))
        state = ("● not ready  ", "bold red") if look.status.problems else ("● ready  ", "bold green")
        server = f"{look.status.name} {look.status.version}  {self._url}  "
        return Text.assemble(state, (server, "bold"), (f"{look.at:%H:%M:%S}", "dim"))

    def _table(self, look: Look, room: int) -> Table:
        table = _empty_table(room)
        rates = look.rates or {}
        longest_ms = max((_total_ms(one) for one in rates.values()), default=0)
        for model in self._models:
            its = rates.get(model.key)
            past = [_past(model, self._history[model.key])] if room >= 0 else []
            bar = [time_bar(its, longest_ms, room)] if room >= SHORTEST_BAR else []
            table.add_row(_dot(model, look), Text(indented(model)), _speed(its), *past, *_details(its), *bar)
        return table


def _foot(look: Look, room: int) -> list[Text]:
    if look.status is None:
        return []
    legend = [Text.assemble("time of a request: ", *_legend(), "\n", style="dim")] if room >= SHORTEST_BAR else []
    problems = [Text(line, "red") for line in look.status.problems]
    return [*legend, *problems, *(Text(line, "dim") for line in index_notes(look.status))]


def _no_history() -> deque[float | None]:
    return deque([None] * SPARKLINE, maxlen=SPARKLINE)  # so that the last look stands on the right from the start


def _empty_table(room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="dim")
    table.add_column("")
    table.add_column("\nmodel", no_wrap=True)
    table.add_column("\nimages/s", justify="right")
    if room >= 0:
        table.add_column("", width=SPARKLINE)
    for heading in ("failed\n/s", "mean\nbatch", "queue\nms", "compute\nms"):
        table.add_column(heading, justify="right", no_wrap=True)
    if room >= SHORTEST_BAR:
        table.add_column("", no_wrap=True)
    return table


def _dot(model: Model, look: Look) -> Text:
    known = look.status is not None and model.state != NEVER_LOADED
    return Text("●", "dim" if not known else "green" if model.state == READY else "red")


def _speed(rates: Rates | None) -> Text:
    return Text("" if rates is None else number(rates.images_per_s), "bold" if rates and rates.images_per_s else "dim")


def _past(model: Model, history: Iterable[float | None]) -> Text:
    return sparkline(history) if model.state == READY else Text(state_of(model), "red")


def _details(rates: Rates | None) -> list[Text]:
    """Failures a second, mean batch size, queue and compute in ms."""
    if rates is None:
        return []
    failures = Text(number(rates.failures_per_s), "bold red" if rates.failures_per_s else "dim")
    return [failures, *(Text(number(value)) for value in (rates.mean_batch_size, rates.queue_ms, rates.compute_ms))]


def sparkline(history: Iterable[float | None]) -> Text:
    """Bars as high as each value against the highest of them; a gap where there is none."""
    values = list(history)
    highest = max((value for value in values if value), default=1)
    bars = (" " if value is None else LEVELS[round(value / highest * (len(LEVELS) - 1))] for value in values)
    return Text("".join(bars), "cyan")


def time_bar(rates: Rates | None, longest_ms: float, width: int) -> Text:
    """The time of a request in its parts, one after the other, on the scale of the longest, which fills `width`."""
    bar, end_ms, drawn = Text(), 0.0, 0
    for value, (_, colour) in zip(_parts_ms(rates), PARTS, strict=False):
        end_ms += value
        end = round(end_ms / longest_ms * width) if longest_ms else 0
        bar.append("█" * (end - drawn), colour)
        drawn = end
    return bar


def _parts_ms(rates: Rates | None) -> list[float]:
    parts = [rates.queue_ms, rates.input_ms, rates.infer_ms, rates.output_ms] if rates else []
    return [part or 0.0 for part in parts]


def _total_ms(rates: Rates) -> float:
    return sum(_parts_ms(rates))


def _legend() -> Iterator[tuple[str, str]]:
    for name, colour in PARTS:
        yield "█", f"not dim {colour}"
        yield f" {name}  ", ""
