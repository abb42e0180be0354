"""What a step counts for Triton's metrics endpoint: added up here, and handed over to Triton once a second.

Handing over one number is a message to Triton's process and its answer, so what was added in a second is handed over
at once, by a thread of its own, and no request waits for it. Used by both steps: postprocess/metrics.py is a link.
"""

import contextlib
import ctypes
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

INTERVAL_S = 1.0
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)  # images
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)


class Counter:
    """Amounts that only grow, one for each of the `values` of its label. For any number of threads."""

    def __init__(self, name: str, description: str, label: str = "", values: Sequence[str] = ("",)) -> None:
        self.name, self.description, self.label = name, description, label
        self._lock = threading.Lock()
        self._amounts: dict[str, float] = dict.fromkeys(values, 0)

    def add(self, amount: float = 1, *values: str) -> None:
        """Add it to the amount of each of these `values`."""
        with self._lock:
            for value in values or ("",):
                self._amounts[value] += amount

    def take(self) -> dict[str, float]:
        """What was added since it was last taken, by the label's values."""
        with self._lock:
            taken, self._amounts = self._amounts, dict.fromkeys(self._amounts, 0)
        return taken


class Histogram:
    """How many observations were at most each of the upper `bounds`, how many there were, and their sum.

    Made of counters that Prometheus reads as a histogram: Triton's own takes a message for each observation.
    """

    def __init__(self, name: str, description: str, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        # The largest first: a scrape between two messages must not find more below a bound than below a higher one.
        self._labels = ["+Inf", *(f"{bound:g}" for bound in reversed(bounds))]
        self._count = Counter(f"{name}_count", f"{description}, how many")
        self._sum = Counter(f"{name}_sum", f"{description}, their sum")
        self._bucket = Counter(f"{name}_bucket", f"{description}, how many at most `le`", "le", self._labels)
        self.counters = [self._count, self._sum, self._bucket]

    def observe(self, value: float) -> None:
        self._count.add()
        self._sum.add(value)
        self._bucket.add(1, *self._labels[: len(self._labels) - bisect_left(self._bounds, value)])

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Observe how many seconds the block takes, unless it fails."""
        started = time.perf_counter()
        yield
        self.observe(time.perf_counter() - started)


class Publisher:
    """Hands over to Triton, once a second, what `metrics` have counted since, with the label `model`.

    `new_family` is called with a name and a description, and returns a pb_utils.MetricFamily of counters. A thread of
    its own runs until `stop`.
    """

    def __init__(
        self,
        metrics: Sequence[Counter | Histogram],
        model: str,
        new_family: Callable[[str, str], Any],
        log_error: Callable[[str], Any],
    ) -> None:
        self._log_error = log_error
        self._series: list[tuple[Counter, dict[str, Any]]] = []
        for counter in _counters(metrics):
            family = new_family(counter.name, counter.description)
            _keep_for_ever(family)
            labels = {value: {counter.label: value} if counter.label else {} for value in counter.take()}
            series = {value: family.Metric(labels={"model": model, **own}) for value, own in labels.items()}
            self._series.append((counter, series))
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hand over the rest."""
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_stopped.wait(INTERVAL_S):
                self._publish()
            self._publish()
        except Exception as error:  # images are classified without metrics too
            self._log_error(f"metrics: expected Triton to take them, got {error!r}; no more are handed over")

    def _publish(self) -> None:
        for counter, series in self._series:
            for value, amount in counter.take().items():
                if amount:
                    series[value].increment(amount)


def _counters(metrics: Sequence[Counter | Histogram]) -> Iterator[Counter]:
    for metric in metrics:
        yield from metric.counters if isinstance(metric, Histogram) else [metric]


def _keep_for_ever(family: Any) -> None:
    """Never have the stub delete a family and its metrics, not even at its end.

    All instances and loads of a model share one number for each name and labels, and the first of them that deleted
    it would delete it for all: the next increment is a segmentation fault of the server (Triton 24.10,
    https://github.com/triton-inference-server/server/issues/8663). The stub itself crashes where it deletes them at its
    end (issue 8662). Kept, the numbers go on growing over a reload.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(family))
