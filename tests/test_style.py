"""What `make lint` checks, so that `make test` proves it too; and the Makefile's list of its targets."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("arguments", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join)
def test_lint(arguments: list[str]) -> None:
    outcome = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_make_alone_lists_the_targets() -> None:
    command = ["make", "--no-print-directory"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    targets = [line.split()[1] for line in listing.splitlines()]
    assert targets[:3] == ["help", "demo", "test"]
    assert {"setup", "export", "repository", "serve", "classify", "lint", "clean"} <= set(targets)


def test_make_serve_checks_what_it_serves_and_the_arguments_are_the_servers() -> None:
    command = ["make", "--dry-run", "--no-print-directory", "serve", "NAME=mine", "ARGS=--http-port 9000"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    assert outcome.stdout.splitlines()[-1] == (
        ".venv/bin/python -m export check build/mine/model_repository && "
        "exec .venv/bin/python -m server --model-repository build/mine/model_repository --http-port 9000"
    )
