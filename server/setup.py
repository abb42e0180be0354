"""`python -m server.setup`: makes the virtual environment `.venv`, or says why this machine cannot have one.

It runs on whatever Python 3 the machine has: the syntax is that of 3.6, and nothing outside the standard library is
imported.
"""

import hashlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.sha256"

SUPPORTED_PYTHONS = ((3, 11), (3, 12))
MIN_GLIBC = (2, 35)


def main(arguments: List[str]) -> int:
    """Install what `make demo` needs, with --dev also what `make test` needs; quick where nothing is to be done."""
    name = "requirements-dev.txt" if "--dev" in arguments else "requirements.txt"
    if is_installed(name):
        return 0
    if venv_python() not in SUPPORTED_PYTHONS:
        problem = find_problem(sys.version_info[:2], platform.system(), platform.machine(), platform.libc_ver())
        if problem:
            print(f"setup: {problem}", file=sys.stderr)
            return 1
    try:
        install(name)
    except subprocess.CalledProcessError as error:
        command = " ".join(Path(part).name for part in error.cmd[:4])
        print(f"setup: '{command}' failed, its message is above; run the command again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    STAMP.write_text(fingerprint(name))
    return 0


def find_problem(python: Tuple[int, ...], system: str, machine: str, libc: Tuple[str, str]) -> Optional[str]:
    """Say in one sentence what this machine lacks, or return None.

    `python` is such as (3, 11), `libc` what platform.libc_ver() returns, such as ("glibc", "2.36").
    """
    if python not in SUPPORTED_PYTHONS:
        got = ".".join(map(str, python))
        return f"expected Python 3.11 or 3.12, got {got}: run make with PYTHON=python3.11 or PYTHON=python3.12"
    if (system, machine) != ("Linux", "x86_64"):
        return f"expected x86-64 Linux, for which PyPI has a tritonserver, got {system} {machine}"
    name, version = libc
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < MIN_GLIBC:
        return f"expected glibc 2.35 or newer (Ubuntu 22.04, Debian 12), got {name or 'another libc'} {version}"
    return None


def install(name: str) -> None:
    """Make .venv where there is none that works, and install requirements file `name` into it."""
    if venv_python() not in SUPPORTED_PYTHONS:
        print("setup: making .venv; the first installation takes minutes, most of it for torch", flush=True)
        subprocess.check_call([sys.executable, "-m", "venv", "--clear", str(VENV)])
    print(f"setup: installing {name} into .venv", flush=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
    subprocess.check_call([*pip, "--constraint", str(ROOT / "constraints.txt"), "--requirement", str(ROOT / name)])


def is_installed(name: str) -> bool:
    """Whether .venv holds what requirements file `name` says; an environment for tests serves the demo too."""
    if not STAMP.exists() or venv_python() not in SUPPORTED_PYTHONS:
        return False
    return STAMP.read_text() in (fingerprint(name), fingerprint("requirements-dev.txt"))


def venv_python() -> Optional[Tuple[int, ...]]:
    """The version of .venv's Python, such as (3, 11), whichever Python runs this; None where it or pip is broken."""
    probe = "import sys, pip; print(*sys.version_info[:2])"
    try:
        version = subprocess.check_output([str(PYTHON), "-c", probe], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(int(part) for part in version.split())


def fingerprint(name: str) -> str:
    """The sha256 of every file that says what is installed for requirements file `name`."""
    digest = hashlib.sha256(name.encode())
    for path in ("constraints.txt", "requirements.txt", name):
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
