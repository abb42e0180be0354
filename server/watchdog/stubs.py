"""The processes in which Triton runs Python models, its stubs, as the process table shows them."""

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from ..installation import STUB_NAME

PROCESSES = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")
STOPPED = "T"  # by SIGSTOP; Z and X: it has died, and only its parent has not asked yet
DEAD = "ZX"
# Fields of /proc/PID/stat behind the name, which may hold anything (proc(5)).
STATE, PARENT, USER_TICKS, SYSTEM_TICKS = 0, 1, 11, 12


@dataclass(frozen=True)
class Stub:
    """One living instance of one version of a model."""

    pid: int
    model: str
    version: str
    shared_memory: str  # its region's name in /dev/shm
    is_stopped: bool

    @property
    def cpu_ticks(self) -> int:
        """Processor time so far, in ticks of the system's clock; 0 where it has ended."""
        fields = _stat(self.pid)
        return int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS]) if fields else 0

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.remove_shared_memory()

    def remove_shared_memory(self) -> None:
        """Remove the name of its region, which Triton keeps mapped as long as it needs it."""
        (SHARED_MEMORY / self.shared_memory).unlink(missing_ok=True)


def stubs_of(triton_pid: int) -> list[Stub]:
    """The living stubs of a tritonserver, sorted by process number."""
    found = (_read_stub(int(path.name), triton_pid) for path in PROCESSES.iterdir() if path.name.isdigit())
    return sorted((stub for stub in found if stub), key=lambda stub: stub.pid)


def _read_stub(pid: int, triton_pid: int) -> Stub | None:
    fields = _stat(pid)
    if not fields or int(fields[PARENT]) != triton_pid or fields[STATE] in DEAD:
        return None
    try:
        arguments = (PROCESSES / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended meanwhile
        return None
    return parse_stub(pid, arguments, is_stopped=fields[STATE] == STOPPED)


def parse_stub(pid: int, arguments: list[str], is_stopped: bool) -> Stub | None:
    """Read the arguments with which Triton starts a stub; None for any other process.

    >>> parse_stub(7, ["/b/triton_python_backend_stub", "/r/preprocess/1/model.py", "region1", "1048576"], False)
    Stub(pid=7, model='preprocess', version='1', shared_memory='region1', is_stopped=False)
    """
    if Path(arguments[0]).name != STUB_NAME:
        return None
    model = re.search(r"/([^/]+)/(\d+)/[^/]+$", arguments[1])
    return model and Stub(pid, model[1], model[2], arguments[2], is_stopped)


def _stat(pid: int) -> list[str]:
    """The fields behind the process' name; none where it has ended."""
    try:
        return (PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
