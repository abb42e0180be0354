"""The client for asyncio."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
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
from .operations import model_config, register_region, unregister_region
from .protocol import Request, make_request
from .results import ImageResult, InOrder, read_results
from .shared_memory import Region

T = TypeVar("T")


class AsyncPipelineClient(BaseClient):
    """The client for asyncio, made and used within one event loop. Options: BaseClient's.

    A task that is cancelled takes its call back: over gRPC the server hears of it. gRPC's `compression` of a
    large image keeps the event loop; HTTP's is done in a thread.

    >>> async def label_of(path: str) -> str:
    ...     async with AsyncPipelineClient("grpc://127.0.0.1:8001", timeout_s=10) as client:
    ...         return (await client.classify(path, top_k=1)).classes[0].label
    >>> asyncio.run(label_of("coffee.png"))
    'espresso'
    """

    def _open(self) -> None:
        self._slots = asyncio.Semaphore(self.max_in_flight)
        self._is_closed = False
        if self._connection.is_grpc:
            from .over_grpc import AsyncGrpcTransport  # as in pipeline.py: only the one in use is imported

            self._transport: Any = AsyncGrpcTransport(self._connection)
        else:
            from .over_http import AsyncHttpTransport

            self._transport = AsyncHttpTransport(self._connection, self.max_in_flight)

    async def __aenter__(self) -> "AsyncPipelineClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls in flight end with an error."""
        self._is_closed = True
        deadline = Deadline(min(self.timeout_s, UNREGISTER_TIMEOUT_S), self.url)
        try:
            for name in self._regions.close() if self._regions else []:
                with contextlib.suppress(ClassificationError):
                    await self._transport.control(unregister_region(name), deadline)
        finally:
            await self._transport.close()

    @overload
    async def classify(  # type: ignore[overload-overlap]  # a str is a path, though also a sequence
        self, images: Image, top_k: int | None = None, threshold: float | None = None
    ) -> ImageResult: ...

    @overload
    async def classify(
        self, images: Sequence[Image], top_k: int | None = None, threshold: float | None = None
    ) -> list[ImageResult]: ...

    async def classify(
        self, images: Image | Sequence[Image], top_k: int | None = None, threshold: float | None = None
    ) -> ImageResult | list[ImageResult]:
        """As PipelineClient.classify."""
        if not is_one_image(images):
            expect_list(images)
            each = self._classify_each(images, top_k, threshold, len(images))  # type: ignore[arg-type]
            return [result async for result in each]
        item = await asyncio.to_thread(read_item, images)  # type: ignore[arg-type]
        (result,) = await self._infer([item], top_k, threshold)
        if result.error:
            raise result.error
        return result

    def classify_each(
        self, images: Iterable[Image], top_k: int | None = None, threshold: float | None = None
    ) -> AsyncIterator[ImageResult]:
        """As PipelineClient.classify_each."""
        expect_several(images)
        return self._classify_each(images, top_k, threshold, None)

    def stream_frames(
        self,
        frames: Iterable[npt.NDArray[np.uint8]] | AsyncIterable[npt.NDArray[np.uint8]],
        top_k: int | None = None,
        threshold: float | None = None,
        *,
        when_full: WhenFull = "wait",
    ) -> AsyncIterator[FrameResult]:
        """As PipelineClient.stream_frames; close it (contextlib.aclosing) where the loop may be left before its end.

        `frames` may be an async iterable too.
        """
        in_flight = self._frames_in_flight(top_k, threshold, when_full)
        from .frame_stream import AsyncFrameStream  # with gRPC

        return AsyncFrameStream(self._transport.stub, self._connection, in_flight).results(frames)

    async def _classify_each(
        self, images: Iterable[Image], top_k: int | None, threshold: float | None, image_count: int | None
    ) -> AsyncIterator[ImageResult]:
        batch_size = self._batch_size(await self._server_batch_size() if image_count != 1 else 1, image_count)
        at_a_time = max(1, self.max_in_flight // batch_size)
        in_order = InOrder()
        running: dict[asyncio.Task[list[ImageResult]], list[int]] = {}
        gathered = batches(images, batch_size)
        try:
            # Files are read in a thread, so that a slow disk does not keep the event loop.
            while (batch := await asyncio.to_thread(next, gathered, None)) is not None:
                places, items = batch
                if isinstance(items, ClassificationError):
                    in_order.put(places, failed(1, items))
                else:
                    running[asyncio.create_task(self._results(items, top_k, threshold))] = places
                for result in in_order.ready():
                    yield result
                while running and (len(running) >= at_a_time or in_order.is_full):
                    await _gather(running, in_order)
                    for result in in_order.ready():
                        yield result
            while running:
                await _gather(running, in_order)
                for result in in_order.ready():
                    yield result
            for result in in_order.ready():
                yield result
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)  # leave none behind

    async def _results(self, items: list[Item], top_k: int | None, threshold: float | None) -> list[ImageResult]:
        """One result an image, whatever happens to the request; raises ParameterError and ClosedError."""
        try:
            return await self._infer(items, top_k, threshold)
        except (ParameterError, ClosedError):
            raise
        except ClassificationError as error:
            if is_alone(items, error):
                return failed(len(items), error)
        return [result for item in items for result in await self._results([item], top_k, threshold)]

    async def _infer(self, items: Sequence[Item], top_k: int | None, threshold: float | None) -> list[ImageResult]:
        request = make_request(items, top_k, threshold)
        return read_results(await self._retried(lambda deadline: self._send(request, deadline)), len(items))

    async def _server_batch_size(self) -> int:
        if self._max_batch_size is None:
            try:
                ask = model_config("pipeline")
                config = await self._retried(lambda deadline: self._transport.control(ask, deadline))
            except (AccessError, NotServedError):  # a proxy that lets nothing but inference through
                return 1
            self._max_batch_size = max_batch_size_of(config)
        return self._max_batch_size

    async def _retried(self, call: Callable[[Deadline], Awaitable[T]]) -> T:
        retries = self._retries()
        while True:
            try:
                async with self._slot(retries.deadline):
                    return await call(retries.deadline)
            except ServiceError as error:
                if self._is_closed:
                    raise self._connection.closed() from error
                delay_s = retries.delay_s(error)
            await asyncio.sleep(delay_s)

    @contextlib.asynccontextmanager
    async def _slot(self, deadline: Deadline) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline.left_s()):
                await self._slots.acquire()
        except TimeoutError:
            raise deadline.error() from None
        try:
            yield
        finally:
            self._slots.release()

    async def _send(self, request: Request, deadline: Deadline) -> Any:
        if self._regions is None or not request.data:  # Triton takes no region of length 0
            return await self._transport.infer(request, deadline)
        with self._regions.lend(request.data) as region:
            try:
                return await self._send_region(region, request, deadline)
            except RegionLostError:  # the server was restarted
                region.is_registered = False
                return await self._send_region(region, request, deadline)

    async def _send_region(self, region: Region, request: Request, deadline: Deadline) -> Any:
        if not region.is_registered:
            await self._transport.control(register_region(region.name, region.byte_size), deadline)
            region.is_registered = True
        return await self._transport.infer(replace(request, region=region.name), deadline)


async def _gather(running: "dict[asyncio.Task[list[ImageResult]], list[int]]", in_order: InOrder) -> None:
    """Wait for one request at least, and hand on the results of those that are done."""
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        in_order.put(running.pop(task), task.result())
