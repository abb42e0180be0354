"""When a load is warm, what counts, and when it is over: the same for every generator."""

import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

WINDOW_TURNS = 3  # answers come in batches: of only a few the rate would depend on where the window ends


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Seconds at least; where answers take long, the warm-up lasts until there are as many as requests in flight, and
    the window until there are WINDOW_TURNS times as many."""

    warm_up_s: float
    window_s: float


@dataclass(kw_only=True)
class LoadResult:
    """What one generator saw in its window."""

    seconds: float = 0.0
    errors: int = 0
    latencies_ms: list[float] = field(default_factory=list)  # of the right answers

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Recorder:
    """Told of every answer; any thread may call it. The window begins and ends with an answer."""

    def __init__(self, concurrency: int, duration: Duration) -> None:
        self.result = LoadResult()
        self.is_over = False
        self._concurrency, self._duration = concurrency, duration
        self._lock = threading.Lock()
        self._is_warm, self._answers, self._phase_started = False, 0, time.perf_counter()

    def answered(self, sent_at: float, *, is_right: bool) -> None:
        """One answer has just come, to what was sent at `sent_at` by time.perf_counter()."""
        now = time.perf_counter()
        with self._lock:
            if self.is_over:
                return
            if self._is_warm and is_right:
                self.result.latencies_ms.append(1000 * (now - sent_at))
            elif not is_right:
                self.result.errors += 1
            self._answers += 1
            least_s = self._duration.window_s if self._is_warm else self._duration.warm_up_s
            turns = WINDOW_TURNS if self._is_warm else 1
            if self._answers >= turns * self._concurrency and now - self._phase_started >= least_s:
                self._end_phase(now)

    def _end_phase(self, now: float) -> None:
        if self._is_warm:
            self.result.seconds = now - self._phase_started
            self.is_over = True
        self._is_warm, self._answers, self._phase_started = True, 0, now
