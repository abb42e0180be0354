"""A process that gets no more memory, and a /dev/shm that is full."""

import contextlib
import errno
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from tests.test_curl import large_photograph

from .fault import Fault, Limits
from .load import Outcome, Tally
from .messages import http_request
from .photos import coffee
from .sending import send_each, send_raw
from .service import Service

SPARE_BYTES = 4 << 20  # above what the stub has: a thumbnail may get through, a photograph does not
LARGE_PHOTOS, LARGE_PHOTO_BYTES = 16, 5_000_000
FULL_S = 5
RESTART_S = 20  # where a stub dies with a lock in its hand, Triton aborts, and is started again
OWN_SHARED_MEMORY_MB = 512


def out_of_memory(service: Service, quick: bool) -> Iterator[Fault]:
    """Its address space is limited to what it has; what it cannot do then it must say, and others must not suffer."""
    file = large_photograph(coffee(), LARGE_PHOTO_BYTES)

    def inject(service: Service) -> Tally:
        pid = service.stub("preprocess_0_0").pid
        limit = virtual_bytes(pid) + SPARE_BYTES
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        request = http_request(file)
        result = send_each(LARGE_PHOTOS * [request], lambda data: send_raw(service.options.http_port, data))
        with contextlib.suppress(ProcessLookupError):  # it died of it
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return result

    yield Fault(
        name="preprocess_0_0 gets no more memory",
        inject=inject,
        limits=Limits(may_be_refused=True, may_fail=True, whole_again_s=RESTART_S),
        own=(Outcome.ANSWERED, Outcome.REFUSED, Outcome.FAILED),
    )


def virtual_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def full_shared_memory(service: Service, quick: bool) -> Iterator[Fault]:
    """Filled to the last page for FULL_S, while larger photographs than before want more of it."""
    file = large_photograph(coffee(), LARGE_PHOTO_BYTES)

    def inject(service: Service) -> Tally:
        filler = service.shared_memory / "filler"
        request = http_request(file)
        try:
            fill(filler)
            began_s = time.monotonic()
            result = send_each(LARGE_PHOTOS * [request], lambda data: send_raw(service.options.http_port, data))
            time.sleep(max(0, FULL_S - (time.monotonic() - began_s)))
        finally:
            filler.unlink(missing_ok=True)
        return result

    yield Fault(
        name=f"/dev/shm full for {FULL_S} s",
        inject=inject,
        limits=Limits(may_be_refused=True, may_fail=True, whole_again_s=RESTART_S),
        own=(Outcome.ANSWERED, Outcome.REFUSED, Outcome.FAILED),
    )


def fill(path: Path) -> None:
    """Write until nothing is free any more."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 20)):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
