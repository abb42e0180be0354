"""System shared memory, through which a client on the server's own machine hands over images without sending them."""

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from .errors import ClassificationError, DeadlineError, ServiceError, UnavailableError
from .forks import renew_in_child

MIN_REGION_BYTES = 1 << 20


class Region:
    """A named piece of shared memory, `byte_size` long."""

    def __init__(self, byte_size: int) -> None:
        # Python's resource tracker, a process of its own, removes it also where this process is killed.
        self._memory = SharedMemory(f"triton-classify-{os.getpid()}-{secrets.token_hex(4)}", True, byte_size)
        self.name, self.byte_size = self._memory.name, byte_size
        try:
            _reserve(self.name, byte_size)
        except OSError:
            self.remove()
            raise
        self.is_registered = False  # with the server
        self.may_be_read = False  # by the server, for a call that ended without an answer

    def write(self, data: bytes) -> None:
        assert self._memory.buf is not None  # until it is removed
        self._memory.buf[: len(data)] = data

    def remove(self) -> None:
        """Remove the name; where the server has it mapped, it keeps the memory until it lets go."""
        self._memory.close()
        with contextlib.suppress(FileNotFoundError):  # whoever clears /dev/shm was here first
            self._memory.unlink()


def _reserve(name: str, byte_size: int) -> None:
    """Take the memory now: where /dev/shm is full, writing to it later would kill this process by SIGBUS."""
    with Path("/dev/shm", name).open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, byte_size)


class RegionPool:
    """The regions of one client; each is lent to one call at a time."""

    def __init__(self) -> None:
        self._is_closed = False
        self._make_anew()
        renew_in_child(self, RegionPool._make_anew)  # the parent's regions stay the parent's, to use and to remove

    def _make_anew(self) -> None:
        self._free: list[Region] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lend(self, data: bytes) -> Iterator[Region]:
        """A region with `data` at its start, for the time of a call. Raises ServiceError where there is no memory.

        Where the call ends without an answer the server may still read the region. It is lent again nevertheless, for
        nobody hears of that answer; but it is not unregistered, which would take the memory from under Triton.
        """
        region = self._take(len(data))
        is_answered = False
        try:
            region.write(data)
            yield region
            is_answered = True
        except ClassificationError as error:
            is_answered = not isinstance(error, DeadlineError | UnavailableError)
            raise
        finally:
            region.may_be_read |= not is_answered
            self._give_back(region)

    def _take(self, size: int) -> Region:
        with self._lock:
            fitting = [region for region in self._free if region.byte_size >= size]
            if fitting:
                region = min(fitting, key=lambda one: one.byte_size)
                self._free.remove(region)
                return region
        byte_size = max(MIN_REGION_BYTES, 1 << (size - 1).bit_length())
        try:
            return Region(byte_size)
        except OSError as error:
            raise ServiceError(f"shared memory: expected {byte_size} free bytes in /dev/shm, got: {error}") from error

    def _give_back(self, region: Region) -> None:
        with self._lock:
            if region.is_registered and not self._is_closed:
                self._free.append(region)
            else:
                region.remove()

    def close(self) -> list[str]:
        """Remove the regions that no call uses, those in use at their call's end; return the names to unregister."""
        with self._lock:
            self._is_closed = True
            for region in self._free:
                region.remove()
            names = [region.name for region in self._free if not region.may_be_read]
            self._free.clear()
            return names
