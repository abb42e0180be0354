"""Frames over gRPC's ModelStreamInfer: the threads, or tasks, that move them in and out of FramesInFlight."""

import asyncio
import contextlib
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from typing import Any

import grpc
import grpc.aio

from .connection import Connection
from .errors import ClassificationError, ServiceError, UnavailableError
from .frames import FrameResult, FramesInFlight
from .over_grpc import call_options, is_being_cancelled, translate

_END = object()


class FrameStream:
    """One thread takes frames from their source, one reads answers, gRPC's own sends; all end with `results`."""

    def __init__(self, stub: Any, connection: Connection, in_flight: FramesInFlight) -> None:
        self._stub, self._connection, self._in_flight = stub, connection, in_flight
        self._changed = threading.Condition()  # guards `in_flight` and all that follows
        self._is_closed = False
        self._error: ClassificationError | None = None
        self._stream: object | None = None  # which one is open
        self._call: Any = None  # gRPC's, of the last one

    def results(self, frames: Iterable[Any]) -> Iterator[FrameResult]:
        """Yields the results in order; ends, or closed, it ends the stream."""
        reader = threading.Thread(target=self._run, name="frames-reader", daemon=True)
        # Is not waited for at the end, since its source may be a camera that gives no more frames.
        taker = threading.Thread(target=self._take, args=(frames,), name="frames-taker", daemon=True)
        reader.start()
        try:
            taker.start()
            while (result := self._wait_for_result()) is not None:
                yield result
        finally:
            self._close()
            reader.join(1)  # no longer: garbage is collected in any thread, and may close this in a thread of ours

    def _wait_for_result(self) -> FrameResult | None:
        with self._changed:
            while (result := self._in_flight.deliver()) is None:
                if self._in_flight.is_over:
                    return None
                if self._error:
                    raise self._error
                self._changed.wait(self._in_flight.deadline().left_s())
            self._changed.notify_all()
            return result

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            if self._call is not None:
                self._call.cancel()

    def _take(self, frames: Iterable[Any]) -> None:
        error = None
        try:
            for _, frame in zip(self._rooms(), frames, strict=False):
                with self._changed:
                    self._in_flight.take(frame)
                    self._changed.notify_all()
        except BaseException as caught:  # the source's own, for whoever wants the results
            error = caught
        with self._changed:
            self._in_flight.end(error)
            self._changed.notify_all()

    def _rooms(self) -> Iterator[None]:
        """Waits for room before each frame, so that the source is not advanced too early."""
        while self._wait_until(lambda: self._in_flight.has_room):
            yield

    def _run(self) -> None:
        try:
            while self._wait_until(lambda: self._in_flight.can_send or self._in_flight.is_all_answered):
                if self._in_flight.is_all_answered:
                    return
                try:
                    self._read_stream()
                except ServiceError as error:
                    with self._changed:
                        if self._is_closed:  # which is why it broke
                            return
                        delay_s = self._in_flight.break_off(error)
                        self._changed.wait_for(lambda: self._is_closed, delay_s)
        except ClassificationError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _read_stream(self) -> None:
        """Send and read until all frames are answered; raises ServiceError where the stream ends before."""
        with contextlib.closing(self._answers()) as answers:
            for message in answers:
                with self._changed:
                    self._in_flight.answer(message)
                    self._changed.notify_all()
        if not self._is_closed and not self._in_flight.is_all_answered:
            raise self._connection.failure("the end of the stream", UnavailableError)

    def _answers(self) -> Generator[Any, None, None]:
        try:
            with self._changed:
                if self._is_closed:
                    return
                self._stream = stream = object()
                self._call = self._stub.ModelStreamInfer(self._messages(stream), **call_options(self._connection, None))
            yield from self._call
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            with self._changed:
                raise translate(error, self._connection, self._in_flight.deadline()) from error
        finally:
            with self._changed:
                self._stream = None
                self._changed.notify_all()
                if self._call is not None:
                    self._call.cancel()

    def _messages(self, stream: object) -> Iterator[Any]:
        """What gRPC sends, in its own thread, until all is sent or `stream` is no longer the one that is open."""

        def is_open() -> bool:
            return self._stream is stream and not self._is_closed and not self._in_flight.is_all_sent

        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._in_flight.can_send or not is_open())
                if not is_open():
                    return
                message = self._in_flight.next_message()
                self._changed.notify_all()
            if message is not None:
                yield message

    def _wait_until(self, condition: Callable[[], bool]) -> bool:
        """False where the stream was closed before."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or condition())
            return not self._is_closed


class AsyncFrameStream:
    """The same for asyncio: one task takes frames from their source, one reads answers, gRPC's own sends."""

    def __init__(self, stub: Any, connection: Connection, in_flight: FramesInFlight) -> None:
        self._stub, self._connection, self._in_flight = stub, connection, in_flight
        self._changed = asyncio.Event()
        self._error: ClassificationError | None = None

    async def results(self, frames: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[FrameResult]:
        """Yields the results in order; ends, or closed, it ends the stream."""
        tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._take(frames))]
        try:
            while (result := await self._wait_for_result()) is not None:
                yield result
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _wait_for_result(self) -> FrameResult | None:
        while (result := self._in_flight.deliver()) is None:
            if self._in_flight.is_over:
                return None
            if self._error:
                raise self._error
            left_s = self._in_flight.deadline().left_s()
            with contextlib.suppress(TimeoutError):  # left_s() tells of it, where a frame's time is over
                async with asyncio.timeout(left_s):  # wait_for (Python 3.11) may lose a cancellation
                    await self._changed.wait()
        self._notify()
        return result

    async def _take(self, frames: Iterable[Any] | AsyncIterable[Any]) -> None:
        error = None
        try:
            advance = _advancing(frames)
            await self._wait_until(lambda: self._in_flight.has_room)
            while (frame := await advance()) is not _END:
                self._in_flight.take(frame)
                self._notify()
                await asyncio.sleep(0)  # a source that never waits would let nobody else run
                await self._wait_until(lambda: self._in_flight.has_room)
        except BaseException as caught:  # the source's own, for whoever wants the results; or our own end
            error = caught
        self._in_flight.end(error)
        self._notify()

    async def _run(self) -> None:
        try:
            while not self._in_flight.is_all_answered:
                try:
                    await self._read_stream()
                except ServiceError as error:
                    await asyncio.sleep(self._in_flight.break_off(error))
                await self._wait_until(lambda: self._in_flight.can_send or self._in_flight.is_all_answered)
        except ClassificationError as error:
            self._error = error
            self._notify()

    async def _read_stream(self) -> None:
        """Send and read until all frames are answered; raises ServiceError where the stream ends before."""
        async with contextlib.aclosing(self._answers()) as answers:
            async for message in answers:
                self._in_flight.answer(message)
                self._notify()
        if not self._in_flight.is_all_answered:
            raise self._connection.failure("the end of the stream", UnavailableError)

    async def _answers(self) -> AsyncGenerator[Any, None]:
        call = None
        try:
            call = self._stub.ModelStreamInfer(self._messages(), **call_options(self._connection, None))
            async for message in call:
                yield message
        except (grpc.RpcError, grpc.aio.UsageError) as error:  # UsageError: the channel is closed
            raise translate(error, self._connection, self._in_flight.deadline()) from error
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            raise self._connection.closed() from None  # gRPC's way to say that the channel is
        finally:
            if call is not None:
                call.cancel()  # gRPC cancels what sends, too

    async def _messages(self) -> AsyncIterator[Any]:
        """What gRPC sends, in a task of its own, which it cancels when the stream ends."""
        while True:
            await self._wait_until(lambda: self._in_flight.can_send or self._in_flight.is_all_sent)
            if self._in_flight.is_all_sent:
                return
            message = self._in_flight.next_message()
            self._notify()
            if message is not None:
                yield message

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()


def _advancing(frames: Iterable[Any] | AsyncIterable[Any]) -> Callable[[], Awaitable[Any]]:
    """A function that gives the next frame, and _END at last; an iterable is advanced in a thread."""
    if isinstance(frames, AsyncIterable):
        source = aiter(frames)
        return lambda: anext(source, _END)
    iterator = iter(frames)
    return lambda: asyncio.to_thread(next, iterator, _END)
