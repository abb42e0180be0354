"""System shared memory, through which a client on the server's own machine hands over images without sending them."""

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory

from .errors import ClassificationError, DeadlineError, UnavailableError

MIN_REGION_BYTES = 1 << 20


class Region:
    """A named piece of shared memory, `byte_size` long."""

    def __init__(self, byte_size: int) -> None:
        # Python's resource tracker, a process of its own, removes it also where this process is killed.
        self._memory = SharedMemory(f"triton-classify-{os.getpid()}-{secrets.token_hex(4)}", True, byte_size)
        self.name, self.byte_size = self._memory.name, byte_size
        self.is_registered = False  # with the server

    def write(self, data: bytes) -> None:
        assert self._memory.buf is not None  # until it is removed
        self._memory.buf[: len(data)] = data

    def remove(self) -> None:
        """Remove the name; where the server has it mapped, it keeps the memory until it lets go."""
        self._memory.close()
        self._memory.unlink()


class RegionPool:
    """The regions of one client; each is lent to one call at a time."""

    def __init__(self) -> None:
        self._free: list[Region] = []
        self._lent: set[Region] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lend(self, data: bytes) -> Iterator[Region]:
        """A region with `data` at its start, for the time of a call.

        Where the call ends without an answer the server may still read the region, so it serves no other call and is
        not unregistered, which would take the memory from under Triton.
        """
        region = self._take(len(data))
        region.write(data)
        is_answered = False
        try:
            yield region
            is_answered = True
        except ClassificationError as error:
            is_answered = not isinstance(error, DeadlineError | UnavailableError)
            raise
        finally:
            self._give_back(region, is_answered)

    def _take(self, size: int) -> Region:
        with self._lock:
            fitting = [region for region in self._free if region.byte_size >= size]
            if fitting:
                region = min(fitting, key=lambda one: one.byte_size)
                self._free.remove(region)
            else:
                region = Region(max(MIN_REGION_BYTES, 1 << (size - 1).bit_length()))
            self._lent.add(region)
            return region

    def _give_back(self, region: Region, is_answered: bool) -> None:
        with self._lock:
            self._lent.discard(region)
            if is_answered:
                self._free.append(region)
            else:
                region.remove()

    def close(self) -> list[str]:
        """Remove the regions that no call uses, those in use at their call's end; return the names to unregister."""
        with self._lock:
            for region in self._free:
                region.remove()
            registered = [region.name for region in self._free if region.is_registered]
            self._free.clear()
            return registered
