"""The launcher, `python -m server`, as its users start it, and its processes as the process table shows them."""

import contextlib
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from server.errors import ServerError
from server.installation import ROOT
from server.options import ServerOptions
from tests.running import leftovers, parent_of, processes_of, server_options, triton_of

READY_TEXT, READY_TIMEOUT_S = "Ctrl-C stops it.", 120
STOP_TIMEOUT_S = 30
KILLED_AFTER_S = 5
LOG_LINES = 15
STOPPED_OR_DEAD = "TZX"  # states of proc(5)
# A /dev/shm of its own, for a fault that would harm other servers on this machine.
OWN_SHARED_MEMORY = 'mount -t tmpfs -o size={}m tmpfs /dev/shm && exec "$@"'


@dataclass(frozen=True)
class Stub:
    """A process that runs one instance of a Python model."""

    pid: int
    name: str  # as Triton names it: preprocess_0_1
    model: str

    @property
    def is_running(self) -> bool:
        return state_of(self.pid) not in STOPPED_OR_DEAD


class Service:
    """A launcher on free ports, ready; as a context manager it is stopped on the way out.

    Raises ServerError where it does not get ready.
    """

    def __init__(self, repository: Path, folder: Path, shared_memory_mb: int | None = None) -> None:
        """What the launcher and Triton say goes into `folder`; `shared_memory_mb` gives it a /dev/shm of its own."""
        self.options: ServerOptions = server_options(repository)
        self.log = folder / "launcher.log"
        ports = [f"--{name}-port={port}" for name, port in self.options.ports.items()]
        command = [sys.executable, "-m", "server", "--model-repository", str(repository), *ports]
        command += ["--log", str(folder / "triton.log")]
        if shared_memory_mb:
            script = OWN_SHARED_MEMORY.format(shared_memory_mb)
            command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self._instances = self._count_running()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while READY_TEXT not in self.said():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"service: expected it to get ready, got:\n{self.said()}")
            time.sleep(0.05)

    def __enter__(self) -> "Service":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> list[str]:
        """Stop it as Ctrl-C does; the processes and files that it leaves behind, which are removed then."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT_S)
        was_killed = self.process.poll() is None
        if was_killed:
            self.process.kill()
            self.process.wait()
        left = processes_of(self.options.repository, within_s=KILLED_AFTER_S if was_killed else 0)
        left += map(str, leftovers(self.process.pid))
        return ["the launcher did not end by itself", *left] if was_killed else left

    def said(self) -> str:
        """The end of what the launcher has printed."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:])

    @property
    def triton_pid(self) -> int | None:
        """None while there is none, as between two starts."""
        try:
            return int(triton_of(self.process.pid))
        except (ValueError, OSError):
            return None

    def stubs(self) -> list[Stub]:
        return stubs_of(self.triton_pid)

    def stub(self, name: str) -> Stub:
        """Raises ProcessLookupError where there is none."""
        for stub in self.stubs():
            if stub.name == name:
                return stub
        raise ProcessLookupError(f"{name}: expected a process, got none")

    def is_whole(self) -> bool:
        """Whether every instance that there was at the start has a process that runs."""
        return not self._instances - self._count_running()

    def _count_running(self) -> Counter[str]:
        return Counter(stub.name for stub in self.stubs() if stub.is_running)

    def processes(self) -> dict[str, int]:
        """Process number by role: the launcher, tritonserver, and each stub by its name."""
        found = {"launcher": self.process.pid, **{stub.name: stub.pid for stub in self.stubs()}}
        triton = self.triton_pid
        return found if triton is None else {"tritonserver": triton, **found}

    @property
    def shared_memory(self) -> Path:
        """Its /dev/shm, seen from outside."""
        return Path(f"/proc/{self.process.pid}/root/dev/shm")


def stubs_of(triton_pid: int | None) -> list[Stub]:
    """The stubs of a tritonserver, by name."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        if triton_pid is None or parent_of(path) != triton_pid:
            continue
        with contextlib.suppress(OSError, IndexError):  # it ended meanwhile
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[0].endswith("triton_python_backend_stub"):
                # a file of the model, region, size, growth, Triton, backend folder, a number, the name
                found.append(Stub(int(path.name), words[8], Path(words[1]).parts[-3]))
    return sorted(found, key=lambda stub: stub.name)


def state_of(pid: int) -> str:
    """One letter, as proc(5) lists them; X where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def resident_mb(pid: int) -> float:
    """Resident memory; 0 where the process is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * 4096 / 1e6
