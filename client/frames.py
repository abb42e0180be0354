"""The frames of one stream between their source and the caller: their order, their bound, their answers; without IO.

What Triton (24.10) does with a stream: it works on as many requests at a time as come, answers each once and in order,
gives each answer its request's id, errors (`error_message`) too, and goes on after an error. So an answer is known by
its id alone, and an empty final response (`triton_enable_empty_final_response`) would tell nothing more.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .deadline import Deadline, Retries
from .errors import (
    AccessError,
    AnswerError,
    ClassificationError,
    ImageError,
    NotServedError,
    ParameterError,
    ServiceError,
    error_from_text,
)
from .images import read_picture
from .protocol import Request, outputs_of_message
from .results import ImageResult, read_results

WhenFull: TypeAlias = Literal["wait", "drop_oldest"]

FRAMES_IN_FLIGHT = 4  # on two cores as fast as 8 or 16, of which each frame waits longer for its answer
CONCERN_ALL_FRAMES = (ParameterError, AccessError, NotServedError)


@dataclass(frozen=True)
class FrameResult:
    """The answer for one frame: its place in the iterable, from 0, the frame as it was given, its classes or error."""

    index: int
    frame: npt.NDArray[np.uint8] = field(repr=False)
    result: ImageResult


@dataclass(eq=False)
class _Frame:
    index: int
    picture: Any
    deadline: Deadline | None = None  # since it was first sent
    result: ImageResult | None = None


class FramesInFlight:
    """The bookkeeping of one stream, for a client of either kind to drive; not for several threads at a time.

    Frames are taken from the source, sent, answered and delivered. At most `limit` are between taken and delivered;
    with "drop_oldest" a further one waits to be sent, and gives way to the next.
    """

    def __init__(
        self,
        limit: int,
        when_full: WhenFull,
        parameters: Mapping[str, int | float],
        new_retries: Callable[[], Retries],
    ) -> None:
        self._limit, self._when_full, self._parameters, self._new_retries = limit, when_full, parameters, new_retries
        self._retries: Retries | None = None  # since the last answer
        self._taken = 0
        self._frames: dict[int, _Frame] = {}  # by index, in order: all that are not yet delivered
        self._unsent: deque[_Frame] = deque()
        self._unanswered: dict[int, _Frame] = {}  # that were sent, in order
        self._has_ended = False
        self._end_error: BaseException | None = None

    # The source

    @property
    def has_room(self) -> bool:
        """Whether the next frame may be taken from the source."""
        return self._when_full == "drop_oldest" or len(self._frames) < self._limit

    def take(self, picture: Any) -> None:
        """The next frame of the source; where there is no room, the oldest that was never sent gives way."""
        fresh = [frame for frame in self._unsent if frame.deadline is None]
        if len(self._frames) >= self._limit and fresh:
            self._unsent.remove(fresh[0])
            del self._frames[fresh[0].index]
        frame = self._frames[self._taken] = _Frame(self._taken, picture)
        self._unsent.append(frame)
        self._taken += 1

    def end(self, error: BaseException | None = None) -> None:
        """The source has no more frames, or failed; its error is raised when the frames before are delivered."""
        self._has_ended, self._end_error = True, error

    # The stream

    @property
    def can_send(self) -> bool:
        return bool(self._unsent) and len(self._frames) - len(self._unsent) < self._limit

    @property
    def is_all_sent(self) -> bool:
        """Whether nothing will be sent any more, unless the stream breaks."""
        return self._has_ended and not self._unsent

    @property
    def is_all_answered(self) -> bool:
        return self.is_all_sent and not self._unanswered

    def next_message(self) -> Any:
        """The ModelInferRequest to send next; None where that frame cannot be sent, and is answered hereby."""
        frame = self._unsent.popleft()
        try:
            item = read_picture(frame.picture)
        except ImageError as error:
            frame.result = ImageResult([], error)
            return None
        request = Request(item.model, item.tensor, [1, *item.shape], item.data, self._parameters)
        message = request.grpc_message()
        message.id = str(frame.index)
        frame.deadline = frame.deadline or self._new_retries().deadline
        self._unanswered[frame.index] = frame
        return message

    def answer(self, message: Any) -> None:
        """Take a ModelStreamInferResponse; raises the error in it where that is no single frame's."""
        try:
            result = _read_answer(message)
        except ClassificationError as error:
            if isinstance(error, CONCERN_ALL_FRAMES) or (isinstance(error, ServiceError) and error.may_be_retried):
                raise
            result = ImageResult([], error)
        frame = self._unanswered.pop(_index(message.infer_response.id), None)
        if frame is None:
            expected = f"the id of a frame in flight, one of {list(self._unanswered)}"
            raise AnswerError(f"answer: expected {expected}, got {message.infer_response.id!r} {message.error_message}")
        frame.result = result
        self._retries = None

    def break_off(self, error: ServiceError) -> float:
        """The stream broke: what it did not answer is to be sent again, on another.

        Returns for how many seconds to wait before; raises `error` where there is to be no other.
        """
        self._unsent.extendleft(reversed(self._unanswered.values()))
        self._unanswered.clear()
        if not self._unsent:  # nobody waits; the next frame finds out whether the server is back
            return 0
        self._retries = self._retries or replace(self._new_retries(), deadline=self.deadline())
        return self._retries.delay_s(error)

    def deadline(self) -> Deadline:
        """That of the oldest frame which was sent and is not answered; a new one where there is none."""
        sent = (frame.deadline for frame in self._frames.values() if frame.deadline and not frame.result)
        return next(sent, None) or self._new_retries().deadline

    # The caller

    def deliver(self) -> FrameResult | None:
        """The next result in order, None where it is not there yet."""
        frame = next(iter(self._frames.values()), None)
        if frame is None or frame.result is None:
            return None
        del self._frames[frame.index]
        return FrameResult(frame.index, frame.picture, frame.result)

    @property
    def is_over(self) -> bool:
        """Whether all is delivered; raises the source's error where it ended with one."""
        is_over = self._has_ended and not self._frames
        if is_over and self._end_error:
            raise self._end_error
        return is_over


def _read_answer(message: Any) -> ImageResult:
    if message.error_message:
        raise error_from_text(message.error_message)
    (result,) = read_results(outputs_of_message(message.infer_response), 1)
    return result


def _index(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else -1
