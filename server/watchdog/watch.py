"""What is looked at while Triton serves, and what is done about what is found."""

import http.client
import logging
import time
from collections import deque
from collections.abc import Collection, Iterable

from ..errors import ServerError
from ..process import TritonServer
from .backlog import Backlog
from .healing import Retiring, heal, missing_instances
from .health import Health
from .probe import Prober
from .stubs import Stub, stubs_of

LOOK_S = 0.25
HANG_IDLE_S = 5  # out of a step comes nothing, while its processes do nothing
HANG_BUSY_S = 60  # the same while they compute: a batch of the largest images takes most of a minute
IDLE_TICKS = 10  # in HANG_IDLE_S; a stub that waits takes some to tell Triton that it lives
HELPED_AFTER_S = 15  # a model that was loaded again must answer by then
MAX_HEALS, WINDOW_S = 10, 600  # each leaves threads and memory behind in Triton, which only its end frees

logger = logging.getLogger(__name__)


class Watch:
    """Watches one Triton from its readiness to its end."""

    def __init__(self, server: TritonServer, health: Health) -> None:
        self.server, self.health = server, health
        self.prober = Prober(server)
        self._backlog = Backlog(server)
        self._known: list[Stub] = []
        self._retiring: list[Retiring] = []
        self._heals_s: deque[float] = deque(maxlen=MAX_HEALS)
        self._ticks, self._ticks_since_s = 0, 0.0

    def until_failure(self) -> str:
        """Return why Triton must be started again."""
        self._known = self._living()
        self.prober.start()
        try:
            while self.server.process.poll() is None:
                self.look()
                time.sleep(LOOK_S)
            return f"Triton ended by itself, with status {self.server.exit_status}"
        except ServerError as error:
            return str(error)
        finally:
            self.prober.stop()

    def look(self) -> None:
        """Look once, and heal what is found; raises ServerError where that is no cure."""
        self.health.looked()
        self.health.not_ready = self.prober.failure
        self._check_cure()
        self._retiring = [one for one in self._retiring if not one.end_when_idle()]
        try:
            self._look_for_lost_stubs()
            self._look_for_a_hang()
            self._backlog.look()
        except (OSError, http.client.HTTPException) as error:  # Triton has just ended, or is busy: the next look tells
            logger.debug("a look failed: %s", error)

    def _look_for_lost_stubs(self) -> None:
        living = self._living()
        stopped_before = {stub.pid for stub in self._known if stub.is_stopped}
        hanging = [stub for stub in living if stub.is_stopped and stub.pid in stopped_before]
        working = [stub for stub in living if stub not in hanging]
        lost = [stub for stub in self._known if stub.pid not in {one.pid for one in working}]
        for model, version in sorted({(stub.model, stub.version) for stub in lost}):
            missing = missing_instances(self.server, model, version, working)
            if missing:
                self._heal(model, f"{missing} of its processes died or stopped", hanging)
        for stub in lost:
            stub.remove_shared_memory()
        self._known = self._living() if lost else living

    def _look_for_a_hang(self) -> None:
        silence = self.prober.silence
        if silence is None:
            self._ticks_since_s = 0
            return
        stubs = [stub for stub in self._known if stub.model == silence.step]
        silent_s = time.monotonic() - silence.since_s
        if self._were_idle(stubs) or silent_s > HANG_BUSY_S:
            self.prober.failure = f"{silence.step}: expected answers, got none for {silent_s:.0f} s"
            self._heal(silence.step, "no image comes out of it", stubs)
            self.prober.silence = None
            self._known = self._living()

    def _living(self) -> list[Stub]:
        retiring = {stub.pid for one in self._retiring for stub in one.stubs}
        return [stub for stub in stubs_of(self.server.process.pid) if stub.pid not in retiring]

    def _were_idle(self, stubs: Collection[Stub]) -> bool:
        """Whether HANG_IDLE_S have gone by since the silence began in which these took no processor time."""
        now, ticks = time.monotonic(), sum(stub.cpu_ticks for stub in stubs)
        if self._ticks_since_s == 0 or ticks - self._ticks > IDLE_TICKS:
            self._ticks, self._ticks_since_s = ticks, now
        return len(stubs) > 0 and now - self._ticks_since_s > HANG_IDLE_S

    def _heal(self, model: str, finding: str, hanging: Iterable[Stub]) -> None:
        now = time.monotonic()
        if len(self._heals_s) == MAX_HEALS and now - self._heals_s[0] < WINDOW_S:
            raise ServerError(f"model {model}: {finding}; {MAX_HEALS} times in {WINDOW_S // 60} minutes were enough")
        logger.error("model %s: %s; loading it again", model, finding)
        self.health.heals[model] += 1
        self._retiring.append(heal(self.server, model, [stub for stub in hanging if stub.model == model]))
        self._heals_s.append(time.monotonic())
        logger.warning("model %s: whole again after %.1f s", model, time.monotonic() - now)

    def _check_cure(self) -> None:
        """Raises ServerError where no image has got through since a model was loaded again, some time ago."""
        healed_s = self._heals_s[-1] if self._heals_s else self.prober.answered_s
        if self.prober.failure and self.prober.answered_s < healed_s < time.monotonic() - HELPED_AFTER_S:
            raise ServerError(f"{self.prober.failure}, also after the model was loaded again")
