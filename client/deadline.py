"""How long a call may take in all, and what is tried again within that time."""

import logging
import random
import time
from dataclasses import dataclass

from .errors import DeadlineError, ServiceError

FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 2.0

log = logging.getLogger(__package__)


class Deadline:
    """The time until which the server at `url` must have answered, retries included."""

    def __init__(self, timeout_s: float, url: str) -> None:
        self._timeout_s, self._url = timeout_s, url
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds, above 0; raises DeadlineError where none are left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> DeadlineError:
        return DeadlineError(f"{self._url}: expected an answer within {self._timeout_s:g} s, got none")


@dataclass
class Retries:
    """The retries of one call: at most `max_retries`, None for as many as the deadline allows.

    Delays double from 0.1 to 2 s, each drawn between nothing and that ("full jitter"), so that the clients of a server
    that comes back do not all come at once. Source: aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter.
    """

    max_retries: int | None
    deadline: Deadline
    tried: int = 0

    def delay_s(self, error: ServiceError) -> float:
        """How long to wait before the next try; raises `error` where there is to be none."""
        if not error.may_be_retried or self.tried == self.max_retries:
            raise error
        longest = min(FIRST_DELAY_S * 2.0 ** min(self.tried, 10), LONGEST_DELAY_S)  # 2.0**1024 would overflow
        delay = random.uniform(0, longest)
        try:
            left = self.deadline.left_s()
        except DeadlineError:
            raise error from None
        if delay >= left:
            raise error
        self.tried += 1
        log.info("%s; retry %d in %.2f s", error, self.tried, delay)
        return delay
