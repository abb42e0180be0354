"""What the two clients have in common: everything but waiting."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from .connection import DEFAULT_URL, Compression, Connection, Tls
from .deadline import Deadline, Retries
from .errors import ClassificationError, ImageError
from .frames import FRAMES_IN_FLIGHT, FramesInFlight, WhenFull
from .images import BATCH_SIZE, Item
from .protocol import make_parameters
from .results import ImageResult
from .shared_memory import RegionPool

MAX_TIMEOUT_S = 1e9  # about 30 years; gRPC and sockets count in nanoseconds, which overflow before 1e10
UNREGISTER_TIMEOUT_S = 5  # for all regions of shared memory, when a client closes


class BaseClient:
    """A connection to a Triton server that has the ensemble `pipeline`.

    - `url`: grpc://HOST[:PORT] or http://HOST[:PORT][/PATH]; grpcs and https with TLS.
    - `timeout_s`: how long one request may take, retries included; a list of images is several requests. The
      server hears of it: what has waited for so long is not decoded. Over gRPC what it decodes then is not classified.
    - `max_retries`: of what may be retried (errors.py), with growing, random delays; None: until `timeout_s` is over.
    - `max_in_flight`: requests at a time, and images of one `classify_each`; further calls wait.
    - `tls`: certificates, for grpcs and https.
    - `headers`: go along with each request, for restricted protocols and proxies.
    - `compression`: of requests, "gzip" or "deflate"; photographs do not become smaller, raw pictures do.
    - `shared_memory`: hand images over through memory; only where the server runs on the same machine.

    Raises ValueError where one of them is wrong.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout_s: float = 30,
        max_retries: int | None = 5,
        max_in_flight: int = 32,
        tls: Tls | None = None,
        headers: Mapping[str, str] | None = None,
        compression: Compression | None = None,
        shared_memory: bool = False,
    ) -> None:
        if not isinstance(timeout_s, int | float) or not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise ValueError(f"timeout_s: expected a number above 0, at most {MAX_TIMEOUT_S:g}, got {timeout_s!r}")
        if max_retries is not None and max_retries < 0:
            raise ValueError(f"max_retries: expected 0 or more, or None, got {max_retries}")
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight: expected at least 1, got {max_in_flight}")
        self.url, self.timeout_s, self.max_retries, self.max_in_flight = url, timeout_s, max_retries, max_in_flight
        self._connection = Connection(url=url, tls=tls or Tls(), headers=headers or {}, compression=compression)
        self._regions = RegionPool() if shared_memory else None
        self._max_batch_size: int | None = None  # of the server, asked for once
        self._open()

    def _open(self) -> None:
        raise NotImplementedError

    def _retries(self) -> Retries:
        return Retries(self.max_retries, Deadline(self.timeout_s, self.url))

    def _frames_in_flight(self, top_k: int | None, threshold: float | None, when_full: WhenFull) -> FramesInFlight:
        if not self._connection.is_grpc:
            raise ValueError(f"stream_frames: expected a client with a grpc URL, as only gRPC streams, got {self.url}")
        if when_full not in get_args(WhenFull):
            raise ValueError(f"when_full: expected one of {get_args(WhenFull)}, got {when_full!r}")
        limit = min(FRAMES_IN_FLIGHT, self.max_in_flight)
        return FramesInFlight(limit, when_full, make_parameters(top_k, threshold), self._retries)

    def _batch_size(self, max_batch_size: int, image_count: int | None) -> int:
        """Images a request: a list is spread over all that may be in flight before its requests become larger."""
        spread = BATCH_SIZE if image_count is None else math.ceil(image_count / self.max_in_flight)
        return max(1, min(BATCH_SIZE, max_batch_size, spread))


def max_batch_size_of(config: Any) -> int:
    """From a model's configuration; 1 where it does not say."""
    size = config.get("max_batch_size") if isinstance(config, Mapping) else None
    return size if isinstance(size, int) and size > 0 else 1


def failed(count: int, error: ClassificationError) -> list[ImageResult]:
    """The same failure for each image of a request."""
    return [ImageResult([], error) for _ in range(count)]


def is_alone(items: Sequence[Item], error: ClassificationError) -> bool:
    """Whether an error is one image's; a batch of which every image is refused bears the reason of the first only."""
    return len(items) == 1 or not isinstance(error, ImageError)
