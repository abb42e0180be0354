"""The virtual environment of the other servers: their packages do not go with those of the project."""

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.errors import BenchmarkError
from server.installation import ROOT

VENV = ROOT / "build" / "comparison-venv"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_TIMEOUT_S = 600


def make_environment(venv: Path = VENV) -> Path:
    """Make the environment where it is not there as requirements.txt says, showing pip's progress.

    Returns its Python. Raises BenchmarkError where pip fails.
    """
    python, stamp = venv / "bin" / "python", venv / "installed.sha256"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted and python.exists():
        return python
    print(f"other servers: installing {REQUIREMENTS.name} into {venv}", flush=True)
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--requirement", str(REQUIREMENTS)],
    ]
    for command in commands:
        try:
            subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise BenchmarkError(
                f"other servers: expected {REQUIREMENTS.name} to be installed within {INSTALL_TIMEOUT_S} s, it was "
                "not, pip's message is above: run it again with a package index in reach"
            ) from error
    stamp.write_text(wanted)
    return python
