"""Has `preprocess` refuse what comes while too many requests wait for the steps behind it.

Each has its pixels in memory, and where the network is the slower step they would be ever more. Triton 24.10 can bound
a step's queue, but may leave a model of one instance idle for half a second then, though requests wait. So the launcher
looks, and tells by one byte that `preprocess` maps (python_models/preprocess/backlog.py).
"""

import re

from ..process import TritonServer
from .probe import SERVICE, steps_of

MAX_WAITING = 512  # requests
PENDING = re.compile(r'^nv_inference_pending_request_count\{model="([^"]+)",version="[^"]+"\} (\d+)', re.MULTILINE)


class Backlog:
    """Looked at four times a second, it overshoots by what `preprocess` does in that time."""

    def __init__(self, server: TritonServer, most: int = MAX_WAITING) -> None:
        self.server, self.most = server, most
        self._steps: list[str] = []
        self._is_too_long = False

    def look(self) -> None:
        """Raises OSError or http.client.HTTPException where Triton does not answer."""
        self._steps = self._steps or steps_of(self.server.client.config(SERVICE))[1:]
        waiting = sum(count for model, count in pending(self.server.client.metrics()) if model in self._steps)
        is_too_long = waiting > self.most
        if is_too_long != self._is_too_long:
            self._is_too_long = is_too_long
            with self.server.backlog.open("r+b") as file:  # never shorter: it is mapped
                file.write(b"\1" if is_too_long else b"\0")


def pending(metrics: str) -> list[tuple[str, int]]:
    """How many requests wait in the queue of each version of each model, by Triton's metrics page.

    >>> pending('nv_inference_pending_request_count{model="resnet50",version="1"} 3')
    [('resnet50', 3)]
    """
    return [(model, int(count)) for model, count in PENDING.findall(metrics)]
