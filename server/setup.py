"""`python -m server.setup`: makes the virtual environment `.venv`, or says why this machine cannot have one.

It runs on whatever Python the machine has, so the syntax is old and nothing outside the standard library is imported.
"""

import hashlib
import os
import platform
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "installed.sha256")
CONSTRAINTS = os.path.join(ROOT, "constraints.txt")

SUPPORTED_PYTHONS = ((3, 11), (3, 12))
MIN_GLIBC = (2, 35)


def main(arguments):
    """Install what `make demo` needs, with --dev also what `make test` needs; quick where nothing is to be done."""
    problem = find_problem(sys.version_info[:2], platform.system(), platform.machine(), platform.libc_ver())
    if problem:
        sys.stderr.write("setup: " + problem + "\n")
        return 1
    name = "requirements-dev.txt" if "--dev" in arguments else "requirements.txt"
    requirements = os.path.join(ROOT, name)
    if is_installed(name):
        return 0
    print("setup: installing " + name + " into .venv; the first time takes minutes, most of it for torch")
    sys.stdout.flush()
    try:
        subprocess.check_call([sys.executable, "-m", "venv", "--clear", VENV])
        pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--constraint", CONSTRAINTS]
        subprocess.check_call(pip + ["--requirement", requirements])
    except subprocess.CalledProcessError as error:
        command = " ".join(os.path.basename(part) for part in error.cmd[:4])
        sys.stderr.write("setup: '" + command + "' failed; its message is above. ")
        sys.stderr.write("Without the module venv: apt-get install python3-venv. Then run the command again.\n")
        return 1
    with open(STAMP, "w") as stamp:
        stamp.write(fingerprint(name))
    return 0


def find_problem(python, system, machine, libc):
    """Say in one sentence what this machine lacks, or return None.

    `python` is (3, 11), `libc` what platform.libc_ver() returns, such as ("glibc", "2.36").
    """
    if python not in SUPPORTED_PYTHONS:
        return "expected Python 3.11 or 3.12, got %d.%d: run make with PYTHON=python3.11 or PYTHON=python3.12" % python
    if system != "Linux" or machine != "x86_64":
        return "expected x86-64 Linux, for which there is a tritonserver on PyPI, got %s %s" % (system, machine)
    name, version = libc
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < MIN_GLIBC:
        return "expected glibc 2.35 or newer (Ubuntu 22.04, Debian 12), got %s %s" % (name or "another libc", version)
    return None


def is_installed(name):
    """Whether .venv holds what requirements file `name` says; an environment for tests serves the demo too."""
    try:
        with open(STAMP) as stamp:
            installed = stamp.read()
        works = subprocess.call([PYTHON, "-c", ""]) == 0
    except OSError:
        return False
    return works and installed in (fingerprint(name), fingerprint("requirements-dev.txt"))


def fingerprint(name):
    """The sha256 of the Python version and of every file that says what is installed for `name`."""
    digest = hashlib.sha256(repr((name, sys.version_info[:2])).encode())
    for path in ("requirements.txt", "requirements-dev.txt", "constraints.txt"):
        if path == name or path != "requirements-dev.txt":
            with open(os.path.join(ROOT, path), "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
