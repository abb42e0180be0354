"""The measurements run from end to end; how fast anything is, they say and no test does."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks import onnxruntime_backend
from benchmarks.onnxruntime_backend import Round
from tests.conftest import need_library


def test_the_backend_is_measured() -> None:
    need_library("b64", package="libb64-0d")
    command = [sys.executable, "-m", "benchmarks.onnxruntime_backend", "--rounds", "1"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert outcome.returncode == 0, outcome.stderr
    for row in ("ONNX Runtime in one process", "served, concurrency 1", "served, concurrency 2"):
        numbers = re.search(rf"^{row} +([\d.]+) +([\d.]+) +([\d.]+)$", outcome.stdout, re.MULTILINE)
        assert numbers is not None, outcome.stdout
        assert float(numbers[1]) > 0


def test_the_first_request_is_measured(lite0: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.first_request", "--model-repository", str(lite0), "--rounds", "1"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    numbers = [float(word) for word in outcome.stdout.splitlines()[-1].split()]
    assert len(numbers) == 5
    assert min(numbers) > 0


def test_shared_memory_is_measured(lite0: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.shared_memory", "--model-repository", str(lite0), "--rounds", "1"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    rows = outcome.stdout.splitlines()[2:]
    assert [row.split(",")[1].split()[0] for row in rows] == ["sent", "shared"] * 2
    assert all(float(word) > 0 for row in rows for word in row.split()[-2:])


def test_the_ratio_is_that_of_each_round_and_its_median_counts() -> None:
    rounds = [Round(in_process=50, served={1: served, 2: 50}) for served in (25, 49, 100)]  # ratios 0.5, 0.98, 2
    last = onnxruntime_backend.table(rounds).splitlines()[-1]
    assert last.split()[3:6] == ["0.980", "0.500", "2.000"]
    assert last.endswith("met")
