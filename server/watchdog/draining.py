"""Going on until nobody asks any more: for load balancers, which hear of the end by `/ready` and by their own looks."""

import http.client
import time

from ..process import TritonServer

QUIET_S = 1  # without a request
LOOK_S = 0.2


def drain(server: TritonServer, timeout_s: float) -> None:
    """Return when no request has come for a second, at the latest after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    counts, changed_s = None, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - changed_s < QUIET_S:
        time.sleep(LOOK_S)
        try:
            now = server.client.request_counts()
        except (OSError, http.client.HTTPException):  # there is nothing left to wait for
            return
        if now != counts:
            counts, changed_s = now, time.monotonic()
