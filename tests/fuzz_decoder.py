"""Damage valid image files and decode them: each must give pixels or a documented error, at a bounded cost.

    python -m tests.fuzz_decoder --files 100000 [--seed S]

Hypothesis chooses the damage, and reduces what fails to the least that does. The files are decoded in a process of
their own, so that a crash of the decoder is one more finding: each file is handed to this process before it is decoded.
"""

import argparse
import faulthandler
import importlib
import logging
import multiprocessing
import os
import re
import secrets
import struct
import sys
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import get_args

import hypothesis
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.errors import Code, InvalidImageError
from tests.corpus import Sample, recipes

CODES = set(get_args(Code))
LIMITS = Limits(max_image_bytes=1 << 20, max_image_pixels=1 << 20, max_image_frames=100, max_jpeg_scans=100)
MAX_CPU_SECONDS = 1.0  # of one file; within these limits an honest one takes hundredths
# Of all files together, above what is in use once every valid sample has been decoded: twice RGBA of the most pixels,
# and 64 MB for what decoders keep of their own and for the heap's holes.
MAX_EXTRA_BYTES = 8 * LIMITS.max_image_pixels + (64 << 20)
MAX_DRIFT_BYTES = 16 << 20  # from the first to the last quarter of a run
FILES_A_ROUND = (
    1000  # hypothesis remembers what it tried until a round ends; over a whole run that would look like a leak
)
HANG_SECONDS = 60.0
MOST_FAILURES = 20  # after these the run ends: one defect is usually behind many of them
MAX_SAMPLE_BYTES, MAX_SAMPLE_PIXELS = 20_000, 20_000  # small ones, so that many are tried and most damage hits a header

Decoder = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]
Samples = dict[str, list[Sample]]  # by format


def decode_within_limits(file: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return decode(file, LIMITS)


DEFAULT_DECODER = "tests.fuzz_decoder:decode_within_limits"


def load_decoder(name: str) -> Decoder:
    module, function = name.split(":")
    decoder: Decoder = getattr(importlib.import_module(module), function)
    return decoder


# What the worker says, for each file an Attempt and an Outcome


@dataclass(frozen=True)
class Attempt:
    name: str  # of the sample
    damage: tuple[str, ...]  # step by step
    file: bytes

    @property
    def format(self) -> str:
        return self.name.split("-")[0]


@dataclass(frozen=True)
class Outcome:
    format: str
    code: str  # "pixels", one of CODES, or a kind of failure
    cpu_seconds: float = 0
    extra_bytes: int = 0  # the worker's peak until now, above what it had at the start
    counts: bool = True  # not where a failure is tried again with less damage


@dataclass(frozen=True)
class Failure:
    attempt: Attempt  # with the least damage that fails
    code: str
    text: str  # what was expected and what arrived


@dataclass(frozen=True)
class Death:
    """What this process sees where the worker says nothing any more."""

    code: str  # "crash" or "hang"
    text: str


# Damage: each takes a file and returns what it did and the result

EXTREMES = [
    struct.pack(f"{order}{code}", value)
    for code, bits in [("B", 8), ("H", 16), ("H", 16), ("I", 32), ("I", 32)]
    for value in (0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 2, (1 << bits) - 1, 1 << bits // 2)
    for order in "<>"
]
EXTREME_DIGITS = [b"0", b"65535", b"65536", b"4294967295", b"1000000000000"]  # for PNM, whose header is text


def place(rng: Random, file: bytes) -> int:
    """Somewhere; in every other case in the first 100 bytes, where the headers are."""
    return rng.randint(0, min(len(file), 100) if rng.random() < 0.5 else len(file))


def length(rng: Random, file: bytes) -> int:
    """Of a block: mostly short."""
    return rng.randint(1, rng.choice([1, 4, 16, 64, max(len(file) // 2, 1)]))


def replaced(file: bytes, at: int, new: bytes) -> bytes:
    return file[:at] + new + file[at + len(new) :]


def flip(rng: Random, file: bytes) -> tuple[str, bytes]:
    at, bit = place(rng, file), rng.randrange(8)
    return f"flip bit {bit} of byte {at}", replaced(file, at, bytes(byte ^ 1 << bit for byte in file[at : at + 1]))


def overwrite(rng: Random, file: bytes) -> tuple[str, bytes]:
    at, new = place(rng, file), rng.randbytes(length(rng, file))
    return f"overwrite {len(new)} bytes at {at}", replaced(file, at, new)


def overwrite_number(rng: Random, file: bytes) -> tuple[str, bytes]:
    at, new = place(rng, file), rng.choice(EXTREMES + EXTREME_DIGITS if file[:1] == b"P" else EXTREMES)
    return f"overwrite at {at}: {new.hex()}", replaced(file, at, new)


def fill(rng: Random, file: bytes) -> tuple[str, bytes]:
    at, count, value = place(rng, file), length(rng, file), rng.randrange(256)
    return f"fill {count} bytes at {at} with {value}", replaced(file, at, bytes([value]) * count)


def insert(rng: Random, file: bytes) -> tuple[str, bytes]:
    at, new = place(rng, file), rng.randbytes(length(rng, file))
    return f"insert {len(new)} bytes at {at}", file[:at] + new + file[at:]


def delete(rng: Random, file: bytes) -> tuple[str, bytes]:
    at, count = place(rng, file), length(rng, file)
    return f"delete {count} bytes at {at}", file[:at] + file[at + count :]


def duplicate(rng: Random, file: bytes) -> tuple[str, bytes]:
    start, count, at = place(rng, file), length(rng, file), place(rng, file)
    return f"copy {count} bytes from {start} to {at}", file[:at] + file[start : start + count] + file[at:]


def truncate(rng: Random, file: bytes) -> tuple[str, bytes]:
    at = rng.randint(0, len(file))
    return f"truncate at {at}", file[:at]


def pad(rng: Random, file: bytes) -> tuple[str, bytes]:
    count = rng.choice([1, 7, 5000])
    return f"append {count} zeros", file + bytes(count)


DAMAGE = [flip, flip, overwrite, overwrite_number, overwrite_number, fill, insert, delete, duplicate, truncate, pad]


@st.composite
def damaged(draw: st.DrawFn, samples: Samples) -> Attempt:
    """A file with up to four kinds of damage. Formats come equally often, however many samples each has.

    Hypothesis draws a number for each, which decides everything about it. Left to draw places and bytes itself, it is
    half as fast, and as it prefers small numbers, nearly half of the files lose their signature.
    """
    sample = draw(st.sampled_from(samples[draw(st.sampled_from(list(samples)))]))
    file, steps = sample.file, []
    for number in draw(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=4)):
        rng = Random(f"{sample.name} {number}")
        if rng.random() < 0.05:
            step, file = splice(rng, file, samples)
        else:
            step, file = rng.choice(DAMAGE)(rng, file)
        steps.append(step)
    if sample.format == "png" and draw(st.booleans()):  # or all damage would end at the checksums
        steps.append("right checksums")
        file = with_right_checksums(file)
    return Attempt(sample.name, tuple(steps), file)


def splice(rng: Random, file: bytes, samples: Samples) -> tuple[str, bytes]:
    other = rng.choice(samples[rng.choice(list(samples))])
    end, start = place(rng, file), place(rng, other.file)
    return f"from byte {end} on, {other.name} from its byte {start}", file[:end] + other.file[start:]


def with_right_checksums(file: bytes) -> bytes:
    """Of a PNG's chunks, as far as they can be followed."""
    at = 8
    while at + 12 <= len(file):
        end = at + 8 + int.from_bytes(file[at : at + 4], "big")
        if end + 4 > len(file):
            break
        file = replaced(file, end, struct.pack(">I", zlib.crc32(file[at + 4 : end])))
        at = end + 4
    return file


def small_samples() -> Samples:
    samples: Samples = {}
    for sample in (recipe.sample() for recipe in recipes() if recipe.pixels <= MAX_SAMPLE_PIXELS):
        if len(sample.file) <= MAX_SAMPLE_BYTES:
            samples.setdefault(sample.format, []).append(sample)
    return samples


# Judgement


def judged(decoder: Decoder, file: bytes) -> tuple[str, str, float]:
    """The code of one file's outcome; what should not have happened, empty where all is well; seconds of CPU time."""
    started = time.process_time()
    code, failure = _decoded(decoder, file)
    seconds = time.process_time() - started
    if not failure and seconds > MAX_CPU_SECONDS:
        return "slow", f"expected at most {MAX_CPU_SECONDS} s of CPU time, got {seconds:.2f} s ({code})", seconds
    return code, failure, seconds


def _decoded(decoder: Decoder, file: bytes) -> tuple[str, str]:
    try:
        image = decoder(np.frombuffer(file, np.uint8))
    except InvalidImageError as error:
        code, separator, _ = str(error).partition(": ")
        known = code in CODES and separator
        return (code, "") if known else ("undocumented", f"expected a documented code in front, got {str(error)!r}")
    except Exception:
        return "exception", f"expected InvalidImageError or none, got\n{traceback.format_exc()}"
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        return "array", f"expected uint8 (H, W, 3), got {image.dtype} {image.shape}"
    return "pixels", ""


class Memory:
    """What this process has in use, beside what it had at the start. Linux only: /proc."""

    def __init__(self) -> None:
        self.status = os.open("/proc/self/status", os.O_RDONLY)
        self.at_start = self._read("VmRSS")
        self.measurements: list[int] = []
        self._forget_peak()

    def _read(self, field: str) -> int:
        """In bytes. Read for every file, so without opening it anew and without parsing all of it."""
        found = re.search(rf"{field}:\s*(\d+) kB", os.pread(self.status, 4096, 0).decode())
        assert found is not None, f"/proc/self/status: expected {field}"
        return int(found[1]) << 10

    def _forget_peak(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM

    def extra_bytes(self) -> int:
        """The peak since the start or the last failure, above what was in use at the start."""
        return self._read("VmHWM") - self.at_start

    def peak_failure(self) -> str:
        """Empty, or that the peak is too high."""
        extra = self.extra_bytes()
        if extra <= MAX_EXTRA_BYTES:
            return ""
        self._forget_peak()
        most = MAX_EXTRA_BYTES >> 20
        return f"expected at most {most} MB above the start's {self.at_start >> 20} MB, got {extra >> 20} MB"

    def drift_failure(self) -> str:
        """Empty, or that more and more is in use: measured now, and compared with the beginning."""
        self.measurements.append(self._read("VmRSS"))
        quarter = len(self.measurements) // 4
        if quarter == 0:
            return ""
        drift = (sum(self.measurements[-quarter:]) - sum(self.measurements[:quarter])) // quarter
        if drift <= MAX_DRIFT_BYTES:
            return ""
        self.measurements.clear()
        return f"expected no growth over many files, got {drift >> 20} MB more in use than at the beginning"


# The process that decodes, and may crash


def work(connection: Connection, decoder_name: str, seed: int, done: int, files: int) -> None:
    """Say None when ready; then decode files until `files` are done, in rounds that the seed and `done` decide."""
    keep_stderr_for_tracebacks()
    set_hypothesis_home_dir("build/hypothesis")
    worker = Worker(connection, load_decoder(decoder_name))
    while done < files:
        done += worker.round(seed << 32 | done, min(FILES_A_ROUND, files - done))
    connection.close()


def keep_stderr_for_tracebacks() -> None:
    """Let libraries, which complain of every damaged file, write to nowhere."""
    warnings.simplefilter("ignore")
    logging.disable()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    faulthandler.enable(sys.stderr)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class StillFailsError(Exception):
    """How hypothesis is told to look for less damage that fails in the same way."""


class Worker:
    def __init__(self, connection: Connection, decoder: Decoder) -> None:
        self.connection, self.decoder = connection, decoder
        self.samples = small_samples()
        for sample in (sample for format in self.samples.values() for sample in format):
            judged(decoder, sample.file)  # so that every codec is loaded, and has what it keeps, before memory counts
        self.memory = Memory()
        self.done = 0  # in this round
        self.reduced: Failure | None = None  # the one with the least damage so far
        connection.send(None)

    def round(self, seed: int, files: int) -> int:
        """Return how many files were decoded: fewer where one failed, for hypothesis ends there."""
        self.done, self.reduced = 0, None
        options = hypothesis.settings(
            max_examples=files,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        run = hypothesis.seed(seed)(
            options(hypothesis.given(damaged(self.samples))(lambda attempt: self._try(attempt)))
        )
        try:
            run()
        except (StillFailsError, hypothesis.errors.Flaky):  # flaky: it fails, but not every time
            self.connection.send(self.reduced)
        drift = self.memory.drift_failure()
        if drift:
            self.connection.send(Failure(Attempt("", ("all of them",), b""), "memory", drift))
        return self.done

    def _try(self, attempt: Attempt) -> None:
        self.connection.send(attempt)
        code, text, seconds = judged(self.decoder, attempt.file)
        counts = self.reduced is None
        self.done += counts
        extra_bytes = self.memory.extra_bytes()
        if not text and (text := self.memory.peak_failure()):
            code = "memory"
        self.connection.send(Outcome(attempt.format, code, seconds, extra_bytes, counts))
        if not text:
            return
        failure = Failure(attempt, code, text)
        if code in ("slow", "memory"):  # these depend on more than the file, and take too long to try again and again
            if counts:
                self.connection.send(failure)
        elif self.reduced is None or self.reduced.code == code:
            self.reduced = failure
            raise StillFailsError


# The process that watches


def findings(decoder_name: str, seed: int, files: int) -> Iterator[Outcome | Failure]:
    """Of all files; where the worker dies or hangs that is a failure too, and another one goes on."""
    done = 0
    while done < files:
        attempt = None
        for message in _from_worker(decoder_name, seed, done, files):
            if isinstance(message, Attempt):
                attempt = message
            elif isinstance(message, Death):
                if attempt is None:
                    sys.exit(f"fuzz: {message.text} at the valid files: see pytest tests/test_corpus.py")
                done += 1
                yield Outcome(attempt.format, message.code)
                yield Failure(attempt, message.code, message.text)
            else:
                done += isinstance(message, Outcome) and message.counts
                yield message


def _from_worker(decoder_name: str, seed: int, done: int, files: int) -> Iterator[Attempt | Outcome | Failure | Death]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=work, args=(sender, decoder_name, seed, done, files), daemon=True)
    worker.start()
    sender.close()  # the worker's own end is the only one left: its death ends the stream
    try:
        while receiver.poll(HANG_SECONDS):
            message = receiver.recv()
            if message is not None:
                yield message
        yield Death("hang", f"expected an outcome within {HANG_SECONDS:.0f} s, got none")
    except EOFError:
        worker.join()
        if worker.exitcode:
            yield Death("crash", f"expected the process to live, got exit status {worker.exitcode}")
    finally:
        worker.kill()
        worker.join()


def fuzz(decoder_name: str, seed: int, files: int, folder: Path) -> int:
    """Return the number of failures; each file that failed is in the folder."""
    counts: Counter[tuple[str, str]] = Counter()
    failures, started, told = 0, time.monotonic(), time.monotonic()
    most_seconds, most_bytes = 0.0, 0
    for finding in findings(decoder_name, seed, files):
        if isinstance(finding, Failure):
            failures += 1
            _report(finding, folder / f"{finding.code}-{seed}-{failures}-{finding.attempt.name}")
        elif finding.counts:
            counts[finding.format, finding.code] += 1
            most_seconds = max(most_seconds, finding.cpu_seconds)
            most_bytes = max(most_bytes, finding.extra_bytes)
        if time.monotonic() - told > 5:
            told = time.monotonic()
            _tell(counts.total(), files, started, failures)
        if failures == MOST_FAILURES:
            print(f"ended after {MOST_FAILURES} failures", flush=True)
            break
    _tell(counts.total(), files, started, failures)
    print(_table(counts))
    print(f"most of any: {most_seconds:.2f} s of CPU time, {most_bytes >> 20} MB above the start", flush=True)
    return failures


def _report(failure: Failure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(failure.attempt.file)
    print(f"FAILURE, {failure.code}: {failure.text.rstrip()}")
    print(f"  sample {failure.attempt.name}: {'; '.join(failure.attempt.damage)}")
    print(f"  again: python -m tests.fuzz_decoder --file {path}", flush=True)


def _tell(done: int, files: int, started: float, failures: int) -> None:
    rate = done / (time.monotonic() - started)
    print(f"{done} of {files} files, {rate:.0f} a second, failures: {failures}", flush=True)


def _table(counts: Counter[tuple[str, str]]) -> str:
    formats, codes = sorted({format for format, _ in counts}), sorted({code for _, code in counts})
    lines = [["", *codes], *([format, *(str(counts[format, code]) for code in codes)] for format in formats)]
    lines.append(["all", *(str(sum(counts[format, code] for format in formats)) for code in codes)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def decode_one(decoder: Decoder, path: Path) -> int:
    """In this process, with all that libraries have to say."""
    faulthandler.enable()
    memory = Memory()
    code, failure, _ = judged(decoder, path.read_bytes())
    failure = failure or memory.peak_failure()
    print(f"{path}: {code} {failure}".rstrip())
    return 1 if failure else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_decoder", description="Decode damaged image files.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--files", type=int, metavar="N", help="how many damaged files to try")
    what.add_argument("--file", type=Path, metavar="PATH", help="decode one file that failed, in this process")
    parser.add_argument(
        "--seed", type=int, metavar="S", help="the same seed gives the same files (default: another one)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/fuzz"), metavar="FOLDER", help="for files that failed"
    )
    parser.add_argument("--decoder", default=DEFAULT_DECODER, metavar="MODULE:FUNCTION", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.file is not None:
        return decode_one(load_decoder(options.decoder), options.file)
    if options.files < 1:
        parser.error(f"--files: expected at least 1, got {options.files}")
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}: the same files again with --seed {seed}", flush=True)
    return 1 if fuzz(options.decoder, seed, options.files, options.output) else 0


if __name__ == "__main__":
    sys.exit(main())
