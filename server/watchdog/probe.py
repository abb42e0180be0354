"""A small real image through `pipeline`, once a second: nothing else shows that every step answers."""

import http.client
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from python_models.preprocess.warmup import sample_file

from ..process import TritonServer

INTERVAL_S = 1
TIMEOUT_S = 2  # a longer silence is looked into
SERVICE = "pipeline"
BUSY_STATUS = 503  # Triton's, where a queue is full
MAX_ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class Silence:
    """Images reach `step` and none comes out of it, since `since_s` of time.monotonic()."""

    step: str
    since_s: float


class Prober(threading.Thread):
    """Probes a server until it is stopped, and keeps what the last probes showed.

    `failure` is why no image gets through, empty where one does. A busy server shows neither: where a queue is full,
    or no answer comes in time while others get theirs, it stays as it was. So does one failure alone.
    """

    def __init__(self, server: TritonServer) -> None:
        super().__init__(name="prober", daemon=True)
        self.server = server
        self.failure = "no image has got through yet"
        self.answered_s = time.monotonic()
        self.silence: Silence | None = None
        self._image = sample_file().tobytes()
        self._stopped = threading.Event()
        self._failures_in_a_row = 0
        self._counts: dict[str, int] = {}  # at the last silent probe

    def run(self) -> None:
        while True:
            self.probe()
            if self._stopped.wait(INTERVAL_S):
                return

    def stop(self) -> None:
        """Send no more; the last one may still wait for its answer."""
        self._stopped.set()

    def probe(self) -> None:
        """Send one image and note what came of it."""
        try:
            status, reply = self.server.client.classify(SERVICE, self._image, TIMEOUT_S)
        except TimeoutError:
            self._note_silence()
        except (OSError, http.client.HTTPException) as error:
            self._note_failure(f"{SERVICE}: {error}")
        else:
            if status == 200:
                self.failure, self.silence, self.answered_s = "", None, time.monotonic()
                self._failures_in_a_row, self._counts = 0, {}
            elif status != BUSY_STATUS:
                self._note_failure(f"{SERVICE}: {reply.decode(errors='replace')[:MAX_ERROR_CHARACTERS]}")

    def _note_failure(self, failure: str) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row > 1:
            self.failure = failure

    def _note_silence(self) -> None:
        """Tell a step that is busy from one that hangs, by the requests that came out since the last silent probe."""
        try:
            counts = self.server.client.request_counts()
            step = stuck_step(steps_of(self.server.client.config(SERVICE)), self._counts, counts)
        except (OSError, http.client.HTTPException) as error:
            self._note_failure(f"Triton's statistics: {error}")
            return
        self._counts = counts
        if step is None:
            self.silence = None
        elif self.silence is None or self.silence.step != step:
            self.silence = Silence(step, time.monotonic())


def steps_of(config: Mapping[str, Any]) -> list[str]:
    """The models of an ensemble's configuration, in order."""
    return [step["model_name"] for step in config.get("ensemble_scheduling", {}).get("step", [])]


def stuck_step(steps: Sequence[str], before: Mapping[str, int], after: Mapping[str, int]) -> str | None:
    """The first of an ensemble's steps out of which no request came between two looks; None where the last one works.

    >>> stuck_step(["decode", "network", "rank"], {"decode": 5, "network": 5, "rank": 5}, {"decode": 6, "network": 5})
    'network'
    """
    if not before or after.get(steps[-1]) != before.get(steps[-1]):
        return None
    return next((step for step in steps if after.get(step) == before.get(step)), None)
