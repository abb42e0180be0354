"""The fuzzer finds nothing in the decoder, and everything in a decoder that is made to fail."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from python_models.preprocess.errors import InvalidImageError

ROOT = Path(__file__).resolve().parent.parent


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz_decoder", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def failing_decoder(kind: str, file: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Fail at files that lost all but a few bytes; no valid one is that short."""
    if file.size >= 12:
        raise InvalidImageError("corrupt", "as it should")
    if kind == "exception":
        raise KeyError("not documented")
    if kind == "undocumented":
        raise InvalidImageError("Oops", "a code of its own")  # type: ignore[arg-type]
    if kind == "slow":
        end = time.process_time() + 1.1
        while time.process_time() < end:
            pass
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "memory":
        np.ones(100 << 20, np.uint8)
    return np.zeros((1, 1, 1) if kind == "array" else (1, 1, 3), np.uint8)


failing_by_exception = functools.partial(failing_decoder, "exception")
failing_by_undocumented = functools.partial(failing_decoder, "undocumented")
failing_by_slow = functools.partial(failing_decoder, "slow")
failing_by_crash = functools.partial(failing_decoder, "crash")
failing_by_memory = functools.partial(failing_decoder, "memory")
failing_by_array = functools.partial(failing_decoder, "array")


def test_damaged_files_give_pixels_or_a_documented_error(tmp_path: Path) -> None:
    outcome = fuzz("--files", "2000", "--seed", "20", "--output", str(tmp_path))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "2000 of 2000 files" in outcome.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("exception", "KeyError: 'not documented'"),
        ("undocumented", "expected a documented code in front, got 'Oops: a code of its own'"),
        ("slow", "expected at most 1.0 s of CPU time, got 1.1"),
        ("crash", "expected the process to live, got exit status -11"),
        ("memory", "expected at most 72 MB above the start's "),
        ("array", "expected uint8 (H, W, 3), got uint8 (1, 1, 1)"),
    ],
)
def test_a_failure_is_found_and_its_file_kept(kind: str, message: str, tmp_path: Path) -> None:
    decoder = ["--decoder", f"tests.test_fuzz:failing_by_{kind}"]
    outcome = fuzz("--files", "200", "--seed", "3", "--output", str(tmp_path), *decoder)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert message in outcome.stdout
    file = next(tmp_path.glob(f"{kind}-3-1-*"))
    assert len(file.read_bytes()) < 12
    assert f"again: python -m tests.fuzz_decoder --file {file}" in outcome.stdout
    assert fuzz("--file", str(file), *decoder).returncode == (-signal.SIGSEGV if kind == "crash" else 1)


def test_a_decoder_that_keeps_memory_is_found(tmp_path: Path) -> None:
    arguments = ["--decoder", "tests.test_fuzz:leaking_decoder", "--output", str(tmp_path)]
    outcome = fuzz("--files", "4000", "--seed", "1", *arguments)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "expected no growth over many files" in outcome.stdout


kept: list[npt.NDArray[np.uint8]] = []


def leaking_decoder(_: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    kept.append(np.ones(8000, np.uint8))  # too little to pass the limit of the peak in this run
    raise InvalidImageError("corrupt", "as it should")


def test_a_wrong_call_ends_with_2() -> None:
    for arguments in ([], ["--files", "0"], ["--files", "many"]):
        assert fuzz(*arguments).returncode == 2
