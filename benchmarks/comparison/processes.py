"""A process and all that it starts: paused, counted, ended."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

STOP_TIMEOUT_S = 10
POLL_S = 0.05
PROPORTIONAL_KB = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)


def with_descendants(pids: Iterable[int]) -> set[int]:
    """The processes `pids` and their children, grandchildren and so on."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, added = set[int](), set(pids) & parents.keys()
    while added:
        found |= added
        added = {pid for pid, parent in parents.items() if parent in added} - found
    return found


def memory_mb(pids: Iterable[int]) -> float:
    """Resident memory of the processes and all that they started, a page that several share counted once."""
    kilobytes = 0
    for pid in with_descendants(pids):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found = PROPORTIONAL_KB.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
            kilobytes += int(found[1]) if found else 0
    return kilobytes / 1024


def pause(pid: int) -> None:
    """Have a process and all that it started stand still."""
    signal_all(with_descendants([pid]), signal.SIGSTOP)


@contextlib.contextmanager
def awake(pid: int | None) -> Iterator[None]:
    """For the time of the block what was paused runs again; nothing is done for None."""
    if pid is None:
        yield
        return
    signal_all(with_descendants([pid]), signal.SIGCONT)
    try:
        yield
    finally:
        pause(pid)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Have a process end, within STOP_TIMEOUT_S, and leave nothing behind that it started."""
    everything = with_descendants([process.pid])
    signal_all(everything, signal.SIGCONT)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    # BentoML's workers lead groups of their own: it is their parents that tell them.
    signal_all(everything - {process.pid}, signal.SIGKILL)
    process.kill()
    process.wait()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while with_descendants(everything) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
