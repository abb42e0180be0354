"""The client that blocks."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .base import UNREGISTER_TIMEOUT_S, BaseClient, failed, is_alone, max_batch_size_of
from .deadline import Deadline
from .errors import (
    AccessError,
    ClassificationError,
    ClosedError,
    NotServedError,
    ParameterError,
    RegionLostError,
    ServiceError,
)
from .frames import FrameResult, WhenFull
from .images import Image, Item, batches, expect_list, expect_several, is_one_image, read_item
from .operations import Operation, model_config, register_region, unregister_region
from .protocol import Request, make_request
from .results import ImageResult, InOrder, read_results
from .shared_memory import Region

T = TypeVar("T")


class PipelineClient(BaseClient):
    """The client for threads, any number of them at a time; closed on the way out of a `with`. Options: BaseClient's.

    >>> with PipelineClient("grpc://127.0.0.1:8001", timeout_s=10) as client:
    ...     result = client.classify("coffee.png", top_k=1)
    >>> result.classes[0].label
    'espresso'
    """

    def _open(self) -> None:
        self._slots = threading.BoundedSemaphore(self.max_in_flight)
        self._is_closed = threading.Event()
        if self._connection.is_grpc:
            from .over_grpc import GrpcTransport  # each brings heavy dependencies, so only the one in use is imported

            self._transport: Any = GrpcTransport(self._connection)
        else:
            from .over_http import HttpTransport

            self._transport = HttpTransport(self._connection, self.max_in_flight)

    def __enter__(self) -> "PipelineClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls in flight end with an error."""
        self._is_closed.set()
        deadline = Deadline(min(self.timeout_s, UNREGISTER_TIMEOUT_S), self.url)
        try:
            for name in self._regions.close() if self._regions else []:
                with contextlib.suppress(ClassificationError):
                    self._transport.control(unregister_region(name), deadline)
        finally:
            self._transport.close()

    @overload
    def classify(  # type: ignore[overload-overlap]  # a str is a path, though also a sequence
        self, images: Image, top_k: int | None = None, threshold: float | None = None
    ) -> ImageResult: ...

    @overload
    def classify(
        self, images: Sequence[Image], top_k: int | None = None, threshold: float | None = None
    ) -> list[ImageResult]: ...

    def classify(
        self, images: Image | Sequence[Image], top_k: int | None = None, threshold: float | None = None
    ) -> ImageResult | list[ImageResult]:
        """Classify one image, or a list of them: files as bytes or paths, pictures as uint8 arrays (H, W, 3) in RGB.

        `top_k` is the number of classes, `threshold` the score below which they are left out; the pipeline's defaults
        where None. Raises ClassificationError (errors.py) for one image; of a list each result bears its own `error`,
        and only what concerns all of it is raised: a wrong parameter, or a server that is not there to begin with.

        >>> client = PipelineClient("grpc://127.0.0.1:8001")
        >>> [result.error or result.classes[0].label for result in client.classify(["coffee.png", b"no image"])]
        ['espresso', ImageError('not_an_image: expected a JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF or PNM file, ...')]
        """
        if not is_one_image(images):
            expect_list(images)
            return list(self._classify_each(images, top_k, threshold, len(images)))  # type: ignore[arg-type]
        (result,) = self._infer([read_item(images)], top_k, threshold)  # type: ignore[arg-type]
        if result.error:
            raise result.error
        return result

    def classify_each(
        self, images: Iterable[Image], top_k: int | None = None, threshold: float | None = None
    ) -> Iterator[ImageResult]:
        """Classify any number of images, in constant memory; yields their results in order, as they come.

        Otherwise as `classify` of a list. Looks 64 images ahead, to gather those of like length into requests.

        >>> from pathlib import Path
        >>> client = PipelineClient("grpc://127.0.0.1:8001")
        >>> for result in client.classify_each(Path(".").glob("coffee.*")):
        ...     print(result.classes[0].label)
        espresso
        """
        expect_several(images)
        return self._classify_each(images, top_k, threshold, None)

    def control(self, operation: Operation) -> Any:
        """Ask Triton for one of operations.py; returns its reply as HTTP has it, None where that is empty.

        Waits and tries again as `classify` does. Raises ServiceError.
        """
        return self._retried(lambda deadline: self._transport.control(operation, deadline))

    def stream_frames(
        self,
        frames: Iterable[npt.NDArray[np.uint8]],
        top_k: int | None = None,
        threshold: float | None = None,
        *,
        when_full: WhenFull = "wait",
    ) -> Iterator[FrameResult]:
        """Classify the frames of a video, uint8 (H, W, 3) in RGB, over one gRPC stream; yields results in order.

        Each is an array of its own, not one that is filled anew.

        At most 4 frames are on their way, or `max_in_flight` where that is less. Further ones wait in `frames`, which
        is advanced in a thread of its own; or, with "drop_oldest", for a camera, `frames` is advanced as fast as it
        comes, and of those that have not been sent the oldest is dropped, and its index left out.

        A frame that is wrong or refused has a result with an `error`. Where the stream breaks it is opened again, with
        retries as for any call, and frames without an answer are sent again. Raises DeadlineError where a frame has
        none within `timeout_s`, and else as `classify_each`; an exception of `frames` once the results of the frames
        before it have been yielded; ValueError where the client's URL is not gRPC's. To leave the loop, or to close
        the iterator, ends the stream.

        >>> import skimage.data
        >>> client = PipelineClient("grpc://127.0.0.1:8001")
        >>> for one in client.stream_frames([skimage.data.coffee(), skimage.data.rocket()], top_k=1):
        ...     print(one.index, one.frame.shape, one.result.classes[0].label)
        0 (400, 600, 3) espresso
        1 (427, 640, 3) missile
        """
        in_flight = self._frames_in_flight(top_k, threshold, when_full)
        from .frame_stream import FrameStream  # with gRPC

        return FrameStream(self._transport.stub, self._connection, in_flight).results(frames)

    def _classify_each(
        self, images: Iterable[Image], top_k: int | None, threshold: float | None, image_count: int | None
    ) -> Iterator[ImageResult]:
        batch_size = self._batch_size(self._server_batch_size() if image_count != 1 else 1, image_count)
        at_a_time = max(1, self.max_in_flight // batch_size)
        in_order = InOrder()
        running: dict[Future[list[ImageResult]], list[int]] = {}
        threads = ThreadPoolExecutor(at_a_time, thread_name_prefix="classify")
        try:
            for places, items in batches(images, batch_size):
                if isinstance(items, ClassificationError):
                    in_order.put(places, failed(1, items))
                else:
                    running[threads.submit(self._results, items, top_k, threshold)] = places
                yield from in_order.ready()
                while running and (len(running) >= at_a_time or in_order.is_full):
                    _gather(running, in_order)
                    yield from in_order.ready()
            while running:
                _gather(running, in_order)
                yield from in_order.ready()
            yield from in_order.ready()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def _results(self, items: list[Item], top_k: int | None, threshold: float | None) -> list[ImageResult]:
        """One result an image, whatever happens to the request; raises ParameterError and ClosedError."""
        try:
            return self._infer(items, top_k, threshold)
        except (ParameterError, ClosedError):
            raise
        except ClassificationError as error:
            if is_alone(items, error):
                return failed(len(items), error)
        return [result for item in items for result in self._results([item], top_k, threshold)]

    def _infer(self, items: Sequence[Item], top_k: int | None, threshold: float | None) -> list[ImageResult]:
        request = make_request(items, top_k, threshold)
        return read_results(self._retried(lambda deadline: self._send(request, deadline)), len(items))

    def _server_batch_size(self) -> int:
        if self._max_batch_size is None:
            try:
                config = self.control(model_config("pipeline"))
            except (AccessError, NotServedError):  # a proxy that lets nothing but inference through
                return 1
            self._max_batch_size = max_batch_size_of(config)
        return self._max_batch_size

    def _retried(self, call: Callable[[Deadline], T]) -> T:
        retries = self._retries()
        while True:
            try:
                with self._slot(retries.deadline):
                    return call(retries.deadline)
            except ServiceError as error:
                if self._is_closed.is_set():
                    raise self._connection.closed() from error
                delay_s = retries.delay_s(error)
            if self._is_closed.wait(delay_s):
                raise self._connection.closed()

    @contextlib.contextmanager
    def _slot(self, deadline: Deadline) -> Iterator[None]:
        if not self._slots.acquire(timeout=deadline.left_s()):
            raise deadline.error()
        try:
            yield
        finally:
            self._slots.release()

    def _send(self, request: Request, deadline: Deadline) -> Any:
        if self._regions is None or not request.data:  # Triton takes no region of length 0
            return self._transport.infer(request, deadline)
        with self._regions.lend(request.data) as region:
            try:
                return self._send_region(region, request, deadline)
            except RegionLostError:  # the server was restarted
                region.is_registered = False
                return self._send_region(region, request, deadline)

    def _send_region(self, region: Region, request: Request, deadline: Deadline) -> Any:
        if not region.is_registered:
            self._transport.control(register_region(region.name, region.byte_size), deadline)
            region.is_registered = True
        return self._transport.infer(replace(request, region=region.name), deadline)


def _gather(running: "dict[Future[list[ImageResult]], list[int]]", in_order: InOrder) -> None:
    """Wait for one request at least, and hand on the results of those that are done."""
    for done in wait(running, return_when=FIRST_COMPLETED).done:
        in_order.put(running.pop(done), done.result())
