"""Good traffic that does not stop: each answer is compared with the right class, each outcome is kept.

The callers ask by tritonclient and http.client, so that the project's own client is not what is trusted; that one has
callers of its own, of which every image must have its result.
"""

import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any

import tritonclient.grpc
import tritonclient.utils

from client import ClassificationError, PipelineClient, ServiceError
from client.errors import error_from_text
from server.options import ServerOptions
from tests.asking import connect_to, padded, tensor

from .messages import class_of_reply, http_message

ANSWER_TIMEOUT_S = 10  # a request that takes longer is lost
CLIENT_TIMEOUT_S = 30  # of the project's client, with all that it tries again
PAUSE_S = 0.05  # after what was no answer
GRPC_CALLERS, HTTP_CALLERS, CLIENT_CALLERS = 6, 6, 4  # 16 requests in flight
RETRYABLE = {"429", "499", "503", "StatusCode.UNAVAILABLE", "StatusCode.CANCELLED", "StatusCode.RESOURCE_EXHAUSTED"}
CALLERS_FAULT = {"StatusCode.INVALID_ARGUMENT", "StatusCode.NOT_FOUND", "StatusCode.UNIMPLEMENTED"}


class Outcome(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"  # may be asked again
    REJECTED = "rejected"  # the caller's fault
    FAILED = "failed"  # the server's, for good
    LOST = "lost"  # no answer in time
    WRONG = "wrong"  # an answer, of another class


@dataclass(frozen=True)
class Photo:
    """A file, and the class that it is of."""

    file: bytes
    class_id: int


@dataclass(frozen=True)
class Record:
    """What became of one request; times by time.monotonic()."""

    outcome: Outcome
    sent_s: float
    ended_s: float
    text: str = ""

    @property
    def seconds(self) -> float:
        return self.ended_s - self.sent_s


@dataclass
class Tally:
    """Counts of outcomes, the longest of them in seconds, and a text of each that was no answer."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    longest_s: float = 0
    texts: dict[Outcome, str] = field(default_factory=dict)

    def add(self, outcome: Outcome, seconds: float, text: str = "") -> None:
        self.counts[outcome] += 1
        self.longest_s = max(self.longest_s, seconds)
        if text:
            self.texts.setdefault(outcome, text)

    @property
    def sent(self) -> int:
        return self.counts.total()

    def __str__(self) -> str:
        return f"{self.sent}: " + ", ".join(f"{self.counts[one]} {one}" for one in Outcome if self.counts[one])


def tally(records: Iterable[Record]) -> Tally:
    result = Tally()
    for record in records:
        result.add(record.outcome, record.seconds, record.text)
    return result


def judge(status: str, text: str) -> Outcome:
    """What an error is, by its HTTP or gRPC status and its text."""
    error = error_from_text(text)
    if status in RETRYABLE or (isinstance(error, ServiceError) and error.may_be_retried):
        return Outcome.REFUSED
    if status == "StatusCode.DEADLINE_EXCEEDED":
        return Outcome.LOST
    return Outcome.REJECTED if status.startswith("4") or status in CALLERS_FAULT else Outcome.FAILED


Answer = tuple[Outcome, str]  # and the error's text


def answer(class_id: int, photo: Photo) -> Answer:
    if class_id == photo.class_id:
        return Outcome.ANSWERED, ""
    return Outcome.WRONG, f"expected class {photo.class_id}, got {class_id}"


class GrpcCaller:
    """tritonclient over gRPC, one request at a time."""

    def __init__(self, options: ServerOptions) -> None:
        self._client = connect_to(options, "grpc")
        self._outputs = [tritonclient.grpc.InferRequestedOutput("class_id")]

    def ask(self, photo: Photo) -> Answer:
        raw_image = tensor("grpc", "raw_image", padded([photo.file]))
        try:
            reply = self._client.infer("pipeline", [raw_image], outputs=self._outputs, client_timeout=ANSWER_TIMEOUT_S)
        except tritonclient.utils.InferenceServerException as error:
            return judge(str(error.status()), str(error.message())), str(error.message())
        return answer(reply.as_numpy("class_id")[0, 0], photo)

    def close(self) -> None:
        self._client.close()


class HttpCaller:
    """http.client, one request at a time over one connection."""

    def __init__(self, options: ServerOptions) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", options.http_port, timeout=ANSWER_TIMEOUT_S)

    def ask(self, photo: Photo) -> Answer:
        try:
            self._connection.request("POST", *http_message(photo.file))
            reply = self._connection.getresponse()
            body = reply.read()
        except TimeoutError as error:
            self._connection.close()
            return Outcome.LOST, str(error)
        except (OSError, http.client.HTTPException) as error:  # refused, or ended: the server went away
            self._connection.close()
            return Outcome.REFUSED, f"{type(error).__name__}: {error}"
        if reply.status == 200:
            return answer(class_of_reply(body), photo)
        return judge(str(reply.status), body.decode(errors="replace")), body.decode(errors="replace")

    def close(self) -> None:
        self._connection.close()


class ClientCaller:
    """The project's client, which tries again until its timeout: whatever has no result then is lost."""

    def __init__(self, url: str) -> None:
        self._client = PipelineClient(url, timeout_s=CLIENT_TIMEOUT_S, max_retries=None)

    def ask(self, photo: Photo) -> Answer:
        try:
            return answer(self._client.classify(photo.file, top_k=1).classes[0].class_id, photo)
        except ClassificationError as error:
            return Outcome.LOST, f"{type(error).__name__}: {error}"

    def close(self) -> None:
        self._client.close()


class Load:
    """The callers, from the beginning to the end of a `with` block."""

    def __init__(self, options: ServerOptions, photos: list[Photo]) -> None:
        self.records: list[Record] = []  # of the plain callers
        self.client_records: list[Record] = []
        self._photos, self._lock = itertools.cycle(photos), threading.Lock()
        self._waiting: dict[int, float] = {}  # since when, by the caller's number
        self._over = threading.Event()
        urls = itertools.cycle([options.grpc_url, options.http_url])
        plain: list[Any] = [GrpcCaller(options) for _ in range(GRPC_CALLERS)]
        plain += [HttpCaller(options) for _ in range(HTTP_CALLERS)]
        clients = [ClientCaller(next(urls)) for _ in range(CLIENT_CALLERS)]
        work = [(caller, self.records) for caller in plain] + [(caller, self.client_records) for caller in clients]
        self._threads = [
            threading.Thread(target=self._call, args=(number, *each), daemon=True) for number, each in enumerate(work)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self, number: int, caller: Any, records: list[Record]) -> None:
        while not self._over.is_set():
            with self._lock:
                photo = next(self._photos)
            sent_s = self._waiting[number] = time.monotonic()
            outcome, text = caller.ask(photo)
            del self._waiting[number]
            records.append(Record(outcome, sent_s, time.monotonic(), text))
            if outcome != Outcome.ANSWERED:
                time.sleep(PAUSE_S)
        caller.close()

    def oldest_wait_s(self) -> float:
        """How long the request that has waited longest has had no answer yet."""
        now = time.monotonic()
        return max((now - since for since in self._waiting.copy().values()), default=0)


def ended_since(records: Iterable[Record], moment_s: float) -> Iterator[Record]:
    return (record for record in list(records) if record.ended_s >= moment_s)
