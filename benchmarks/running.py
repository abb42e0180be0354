"""What every measurement begins and ends with: an export or photographs, its failures in words and an exit status."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from export.errors import ExportError
from server.errors import ServerError
from server.installation import ROOT, package_folder
from server.signals import StoppedBySignal, stop_on_signals

from .errors import BenchmarkError

EXPORT_TIMEOUT_S = 600
EXIT_FAILED = 1


def run_measurement(measure: Callable[[], int]) -> int:
    """Return the exit status of `measure`; 1 where it cannot go on, 128 + n where signal n stopped it."""
    stop_on_signals()
    try:
        return measure()
    except (BenchmarkError, ExportError, ServerError) as error:
        print(f"the measurement cannot go on: {error}", file=sys.stderr)
        return EXIT_FAILED
    except StoppedBySignal as stopped:
        print(f"{stopped}; nothing is left running", file=sys.stderr)
        return 128 + stopped.number


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value


def left(seconds: float) -> str:
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


def make_output(folder: Path, files: Iterable[str]) -> None:
    """Make the folder, without those `files` of an earlier run; raises BenchmarkError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise BenchmarkError(
            f"--output: expected a folder that can be written to, got {folder}: {error.strerror}"
        ) from error


def sample_photos() -> Path:
    package = package_folder("skimage")
    if package is None:
        raise BenchmarkError(
            "photographs: expected the package scikit-image, or a FOLDER, got neither: run `make setup`"
        )
    return package / "data"


def export_repository(recipe: str, weights: str, folder: Path, *arguments: str) -> Path:
    """Export a recipe into `folder`; return the repository that is also written there.

    `weights` is "pretrained", "random" or a file; `arguments` are further options. Raises BenchmarkError where the
    export fails or takes too long.
    """
    source = weights if weights in ("pretrained", "random") else str(Path(weights).absolute())
    return run_export(folder, "--recipe", recipe, "--weights", source, *arguments)


def run_export(folder: Path, *arguments: str) -> Path:
    """Run `python -m export model` in a process of its own, otherwise as `export_repository`."""
    repository = folder / "model_repository"
    command = [sys.executable, "-m", "export", "model", *arguments, "--output", str(folder)]
    try:
        subprocess.run([*command, "--repository", str(repository)], cwd=ROOT, check=True, timeout=EXPORT_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"the export failed with exit status {error.returncode}, its message is above") from error
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(
            f"export: expected its end within {EXPORT_TIMEOUT_S} s, got none: --weights random needs no host"
        ) from error
    return repository
