"""Starts Triton, keeps it serving, and starts it again where it ends or cannot be healed: `python -m server`."""

import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import ServerError
from ..options import ServerOptions
from ..process import TritonServer
from ..signals import StoppedBySignal, signals_blocked
from .draining import drain
from .health import Health, HealthEndpoint
from .watch import Watch

MAX_RESTARTS, WINDOW_S = 5, 600
FIRST_DELAY_S = 1  # doubled with each restart of the last 10 minutes

logger = logging.getLogger(__name__)


def supervise(
    options: ServerOptions,
    tritonserver: Path | None,
    while_loading: Callable[[], None],
    on_ready: Callable[[], None],
) -> int:
    """Keep a Triton serving until a signal says to stop, and return its exit status then.

    The two functions are called at its first start. Raises ServerError where it cannot be started, or goes on failing.
    """
    health = Health(options.ready_timeout_s)
    restarts: list[float] = []
    server = None
    with HealthEndpoint(options.host, options.health_port, health):
        while True:
            try:
                with TritonServer(options, tritonserver, restart_of=server) as server:
                    if not restarts:
                        while_loading()
                    server.wait_until_ready()
                    try:  # whoever has read the message may already send a signal
                        _say_ready(on_ready, bool(restarts))
                        reason = Watch(server, health).until_failure()
                        with signals_blocked():  # not lost: heard when this Triton is gone
                            server.stop()
                    except StoppedBySignal as stopped:
                        return _stop(server, health, stopped.number)
            except ServerError as error:
                if not restarts:
                    raise
                reason = str(error)
            health.restarts += 1
            health.not_ready = f"Triton is started again: {reason}"
            wait_for_restart(restarts, reason)


def _say_ready(on_ready: Callable[[], None], is_restart: bool) -> None:
    if is_restart:
        logger.warning("Triton is ready again")
    else:
        on_ready()


def _stop(server: TritonServer, health: Health, number: int) -> int:
    """Tell load balancers first, where it is a supervisor that stops us, and a person should not wait for that."""
    health.not_ready = "stopping"
    if number == signal.SIGTERM:
        drain(server, server.options.drain_timeout_s)
    return server.stop(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def wait_for_restart(restarts: list[float], reason: str) -> None:
    """Raises ServerError where there were too many of late."""
    now = time.monotonic()
    while restarts and restarts[0] < now - WINDOW_S:
        del restarts[0]
    restarts.append(now)
    if len(restarts) > MAX_RESTARTS:
        raise ServerError(
            f"Triton: expected it to keep serving, it had to be started again {MAX_RESTARTS} times within "
            f"{WINDOW_S // 60} minutes and failed once more: {reason}"
        )
    delay_s = FIRST_DELAY_S * 2 ** (len(restarts) - 1)
    logger.error("%s; starting Triton again in %d s (%d of %d)", reason, delay_s, len(restarts), MAX_RESTARTS)
    time.sleep(delay_s)
