"""A model whose process died or hangs is loaded again beside the old load, which is ended then.

Triton 24.10 never starts a stub again, and says that all is well. What a new load leaves behind (DESIGN.md, fact 10)
is the old one's healthy stubs, which nobody would ever stop.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from ..errors import ServerError
from ..process import TritonServer
from .stubs import Stub, stubs_of

LOADED_AGAIN = "LOADED_AGAIN"  # python_models know this parameter, and take no notice
RETIRE_TIMEOUT_S = 5
LOOK_S = 0.3


def heal(server: TritonServer, model: str, hanging: Iterable[Stub] = ()) -> "Retiring":
    """Load `model` again, as it is configured now, and return the stubs that it had, which are to be ended.

    Those `hanging` are ended at once, so that the requests that they hold fail and can be tried again. Works on a
    read-only repository too: the configuration comes with the request. Raises ServerError where it cannot be loaded.
    """
    for stub in hanging:
        stub.end()
    old = [stub for stub in stubs_of(server.process.pid) if stub.model == model]
    config = server.client.config(model)
    # Triton does nothing where files and configuration are those of the load that it has.
    config.setdefault("parameters", {})[LOADED_AGAIN] = {"string_value": f"{time.time():.3f}"}
    reason = _load(server, model, config)
    if reason:
        raise ServerError(f"model {model} cannot be loaded again: {reason}")
    if {stub.pid for stub in stubs_of(server.process.pid) if stub.model == model} <= {stub.pid for stub in old}:
        raise ServerError(f"model {model}: expected new processes once it was loaded again, got none")
    return Retiring(old)


def _load(server: TritonServer, model: str, config: dict[str, Any]) -> str:
    """The reason where it fails. Raises OSError or http.client.HTTPException where Triton ends meanwhile.

    Its stubs have its connections too, and keep them open after its end until they are ended.
    """
    thread = ThreadPoolExecutor(1)
    load = thread.submit(server.client.load, model, server.options.ready_timeout_s, config)
    thread.shutdown(wait=False)  # a signal that ends us must not wait for it
    while not wait([load], timeout=LOOK_S).done:
        if server.process.poll() is not None:
            server.end_stubs()
    return load.result()


class Retiring:
    """Stubs of an old load. New requests go to the new one; what they have in hand they may finish."""

    def __init__(self, stubs: Sequence[Stub]) -> None:
        self.stubs = stubs
        self._deadline_s = time.monotonic() + RETIRE_TIMEOUT_S
        self._ticks, self._looked_s = -1, 0.0

    def end_when_idle(self) -> bool:
        """To be called again and again, until it returns True: then they are ended."""
        now, ticks = time.monotonic(), sum(stub.cpu_ticks for stub in self.stubs)
        if now - self._looked_s < LOOK_S:
            return False
        is_over = ticks == self._ticks or now > self._deadline_s
        self._ticks, self._looked_s = ticks, now
        if is_over:
            for stub in self.stubs:
                stub.end()
        return is_over


def missing_instances(server: TritonServer, model: str, version: str, living: Sequence[Stub]) -> int:
    """How many instances of a ready model have no process; 0 where it is being unloaded or is not ready."""
    if not server.client.is_ready(model, version):
        return 0
    expected = instance_count(server.client.config(model))
    return max(0, expected - sum((stub.model, stub.version) == (model, version) for stub in living))


def instance_count(config: dict[str, Any]) -> int:
    """Instances by `instance_group`, as Triton completed it: `count` on each of a group's GPUs, or on the CPU."""
    groups = config.get("instance_group", [])
    return sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", []))) for group in groups)
