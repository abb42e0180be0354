"""How much of the machine other programs took while something was measured."""

import contextlib
import os
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class OtherWork:
    """Counts from its creation on: all CPU time of the machine but that of this program and of one process group.

    This program means this process and its children that have ended; time that a hypervisor gave to others counts too.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._started = time.monotonic()
        self._at_start_s = self._others_s()

    def cores(self) -> float:
        """The cores that other programs kept busy on average."""
        return (self._others_s() - self._at_start_s) / (time.monotonic() - self._started)

    def _others_s(self) -> float:
        return machine_s() - sum(os.times()[:4]) - group_s(self._group)


def machine_s() -> float:
    """CPU seconds of the whole machine since it started. Source: proc(5), /proc/stat."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def group_s(group: int) -> float:
    """CPU seconds of the living processes of a process group. Source: proc(5), /proc/PID/stat."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = path.read_text(errors="replace").rpartition(")")[2].split()  # a program's name may hold anything
            if int(fields[2]) == group:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S
