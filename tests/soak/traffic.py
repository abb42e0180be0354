"""Mixed traffic: both protocols, photographs of 1 kB to 10 MB, batches, frames, bad files, curl, cancelled calls."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt
import tritonclient.utils
from PIL import Image

from server.options import ServerOptions
from tests.asking import connect_to, padded, tensor
from tests.chaos.connections import upload, vanish_over_grpc, vanish_over_http
from tests.chaos.load import Answer, GrpcCaller, HttpCaller, Outcome, Photo, Tally, answer, judge
from tests.chaos.messages import http_request
from tests.chaos.photos import coffee, with_class
from tests.chaos.service import Service
from tests.test_curl import large_photograph
from tests.writers import encoded

Images = npt.NDArray[np.uint8]

CALLERS = 8
BATCH = 8
UPLOAD_MB = 5
LARGE_BYTES = (1_000_000, 4_000_000, 10_000_000)
THUMBNAIL = (40, 27)  # pixels; about 1 kB
BAD_FILES = (b"", b"no image", bytes(100_000))


@dataclass(frozen=True)
class Kind:
    """One kind of request, how often it comes among the others, and what may become of it."""

    name: str
    weight: int
    ask: Callable[[random.Random], Answer]
    right: Outcome = Outcome.ANSWERED


def kinds(service: Service, photos: list[Photo]) -> list[Kind]:
    """`photos` are those of usual size; the others are made here, which takes seconds."""
    options = service.options
    large = [with_class(options, large_photograph(coffee(), size)) for size in LARGE_BYTES]
    thumbnail = with_class(options, encoded(Image.open(coffee()).resize(THUMBNAIL), "JPEG"))
    frame = np.asarray(Image.open(coffee()))[np.newaxis]
    whole = http_request(photos[0].file)
    callers: list[type[GrpcCaller] | type[HttpCaller]] = [GrpcCaller, HttpCaller]
    return [
        Kind("photo, gRPC", 20, lambda rng: ask_by(GrpcCaller, options, rng.choice(photos))),
        Kind("photo, HTTP", 20, lambda rng: ask_by(HttpCaller, options, rng.choice(photos))),
        Kind("thumbnail", 20, lambda rng: ask_by(HttpCaller, options, thumbnail)),
        Kind("large photo", 2, lambda rng: ask_by(rng.choice(callers), options, rng.choice(large))),
        Kind(f"batch of {BATCH}", 4, lambda rng: ask_batch(options, rng.choices(photos, k=BATCH))),
        Kind("frame", 4, lambda rng: ask_frame(options, frame)),
        Kind("bad file", 8, lambda rng: ask_bad(options, rng.choice(BAD_FILES)), right=Outcome.REJECTED),
        Kind(f"curl, {UPLOAD_MB} MB", 1, lambda rng: upload(service, UPLOAD_MB)),
        Kind("cancelled", 4, lambda rng: cancel(service)),
        Kind("vanished", 4, lambda rng: vanish(service, whole[: rng.randrange(1, len(whole))])),
    ]


def ask_by(kind: type[GrpcCaller] | type[HttpCaller], options: ServerOptions, photo: Photo) -> Answer:
    caller = kind(options)
    result = caller.ask(photo)
    caller.close()
    return result


def ask_bad(options: ServerOptions, file: bytes) -> Answer:
    return ask_by(HttpCaller, options, Photo(file, -1))


def ask_batch(options: ServerOptions, photos: list[Photo]) -> Answer:
    return ask_grpc(options, "pipeline", "raw_image", padded([photo.file for photo in photos]), photos)


def ask_frame(options: ServerOptions, frame: Images) -> Answer:
    espresso = Photo(b"", 967)
    return ask_grpc(options, "pipeline_frames", "frame", frame, [espresso])


def ask_grpc(options: ServerOptions, model: str, name: str, value: Images, photos: list[Photo]) -> Answer:
    client = connect_to(options, "grpc")
    try:
        found = client.infer(model, [tensor("grpc", name, value)], client_timeout=30).as_numpy("class_id")[:, 0]
    except tritonclient.utils.InferenceServerException as error:
        return judge(str(error.status()), str(error.message())), str(error.message())
    finally:
        client.close()
    outcomes = [answer(int(class_id), photo) for class_id, photo in zip(found, photos, strict=True)]
    return max(outcomes, key=lambda each: each[0] == Outcome.WRONG)


def cancel(service: Service) -> Answer:
    """Of a client that has gone nobody knows more."""
    vanish_over_grpc(service, cancels=True)
    return Outcome.ANSWERED, ""


def vanish(service: Service, part: bytes) -> Answer:
    vanish_over_http(service, part)
    return Outcome.ANSWERED, ""


class Traffic:
    """CALLERS that ask one after the other, for the time of a `with` block; each kind's Tally."""

    def __init__(self, wanted: list[Kind], seed: int) -> None:
        self.tallies = {kind.name: Tally() for kind in wanted}
        self._kinds, self._weights = wanted, [kind.weight for kind in wanted]
        self._lock, self._over = threading.Lock(), threading.Event()
        rngs = [random.Random(seed + number) for number in range(CALLERS)]
        self._threads = [threading.Thread(target=self._call, args=[rng], daemon=True) for rng in rngs]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self, rng: random.Random) -> None:
        while not self._over.is_set():
            (kind,) = rng.choices(self._kinds, self._weights)
            began_s = time.monotonic()
            outcome, text = kind.ask(rng)
            with self._lock:
                self.tallies[kind.name].add(outcome, time.monotonic() - began_s, text)

    def misses(self) -> list[str]:
        found = []
        for kind in self._kinds:
            tally = self.tallies[kind.name]
            for outcome, count in Counter(tally.counts).items():
                if outcome != kind.right:
                    found.append(f"{kind.name}: {count} {outcome}: {tally.texts.get(outcome, '')[:300]}")
        return found
