"""`python -m server.setup`: which machines it refuses, with what words, and that it runs on old Pythons to say so."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server import setup

GOOD = ((3, 11), "Linux", "x86_64", ("glibc", "2.35"))


@pytest.mark.parametrize("python", [(3, 11), (3, 12)])
def test_a_machine_that_is_fit(python: tuple[int, int]) -> None:
    assert setup.find_problem(python, *GOOD[1:]) is None


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (((3, 10), *GOOD[1:]), "expected Python 3.11 or 3.12, got 3.10: run make with PYTHON=python3.11 or"),
        (((3, 13), *GOOD[1:]), "expected Python 3.11 or 3.12, got 3.13"),
        (
            (GOOD[0], "Darwin", "arm64", ("", "")),
            "expected x86-64 Linux, for which PyPI has a tritonserver, got Darwin",
        ),
        (
            (GOOD[0], "Linux", "aarch64", GOOD[3]),
            "expected x86-64 Linux, for which PyPI has a tritonserver, got Linux aarch",
        ),
        ((*GOOD[:3], ("glibc", "2.31")), "expected glibc 2.35 or newer (Ubuntu 22.04, Debian 12), got glibc 2.31"),
        ((*GOOD[:3], ("", "")), "expected glibc 2.35 or newer (Ubuntu 22.04, Debian 12), got another libc"),
    ],
    ids=str,
)
def test_a_machine_that_is_not(machine: tuple[tuple[int, int], str, str, tuple[str, str]], message: str) -> None:
    assert (setup.find_problem(*machine) or "").startswith(message)


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.13"])
def test_another_python_says_so_itself(tmp_path: Path, version: str) -> None:
    """Where the machine has one, on the path or among pyenv's; in a checkout without a .venv."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = str(pyenv[0]) if pyenv else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"needs a Python {version}")
    shutil.copytree(setup.ROOT / "server", tmp_path / "server")
    command = [python, "-B", "-m", "server.setup"]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 1
    assert f"setup: expected Python 3.11 or 3.12, got {version}: run make with PYTHON=python3.11" in outcome.stderr


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A .venv elsewhere, with this test's Python and no stamp."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(setup, "PYTHON", tmp_path / "bin" / "python")
    monkeypatch.setattr(setup, "STAMP", tmp_path / "installed.sha256")
    return tmp_path


def test_an_environment_that_is_up_to_date_is_left_alone(venv: Path) -> None:
    assert not setup.is_installed("requirements.txt")
    setup.STAMP.write_text(setup.fingerprint("requirements-dev.txt"))
    assert setup.is_installed("requirements.txt")
    assert setup.is_installed("requirements-dev.txt")
    setup.STAMP.write_text(setup.fingerprint("requirements.txt"))
    assert setup.is_installed("requirements.txt")
    assert not setup.is_installed("requirements-dev.txt")


def test_an_environment_whose_python_is_gone_is_made_anew(venv: Path) -> None:
    setup.STAMP.write_text(setup.fingerprint("requirements.txt"))
    (venv / "bin" / "python").unlink()
    assert not setup.is_installed("requirements.txt")


def test_every_direct_requirement_is_pinned_once() -> None:
    lines = [line for name in ("requirements.txt", "requirements-dev.txt") for line in read_lines(name)]
    assert all("==" in line for line in lines if not line.startswith("-r"))
    names = {line.split("==")[0].split("[")[0].lower().replace("_", "-") for line in lines}
    constrained = {line.split("==")[0].lower().replace("_", "-") for line in read_lines("constraints.txt")}
    assert names & constrained == set()


def read_lines(name: str) -> list[str]:
    lines = (setup.ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]
