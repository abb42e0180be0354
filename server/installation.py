"""Where a tritonserver is, and the folder of backends that it is given."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from .errors import ServerError

ROOT = Path(__file__).resolve().parent.parent
CONTAINER_TRITONSERVER = Path("/opt/tritonserver/bin/tritonserver")
# An image takes and frees some megabytes, which the C library would give back to the system and take again, zeroed,
# for each: 0.2 ms of 3. These are the largest values that it may come to by itself, in bytes: larger blocks go back.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
HELP_TIMEOUT_S = 30
STUB_NAME = "triton_python_backend_stub"


@dataclass(frozen=True)
class Installation:
    """A tritonserver binary with its Python backend, in NVIDIA's layout or in that of the nvidia-pytriton wheel."""

    tritonserver: Path

    @property
    def root(self) -> Path:
        return self.tritonserver.parent.parent

    @property
    def is_wheel(self) -> bool:
        return (self.root / "python_backend_stubs").is_dir()

    @property
    def backends(self) -> Path:
        return self.root / "backends"

    @property
    def stub(self) -> Path:
        """The process that runs a Python model; the wheel has one for each Python, the container its own Python's."""
        if self.is_wheel:
            return self.root / "python_backend_stubs" / python_version() / STUB_NAME
        return self.backends / "python" / STUB_NAME

    def takes_option(self, name: str) -> bool:
        """Whether this release of tritonserver lists the option, such as "--grpc-infer-thread-count", in its --help."""
        outcome = subprocess.run(
            [self.tritonserver, "--help"],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HELP_TIMEOUT_S,
        )
        return re.search(rf"{re.escape(name)}\b", outcome.stdout) is not None

    @property
    def library_folders(self) -> list[Path]:
        """What must come first in the loader's path.

        The interpreter's own libpython goes before a system's: a mixture of one build's library with another's
        standard library fails in places.
        """
        if not self.is_wheel:
            return []
        libdir = Path(sysconfig.get_config_var("LIBDIR") or "/nonexistent")
        own_libpython = [libdir] if (libdir / f"libpython{python_version()}.so.1.0").exists() else []
        return [*own_libpython, self.root.parent.parent / "nvidia_pytriton.libs"]

    def environment(self) -> dict[str, str]:
        """The environment for tritonserver: its libraries, and the Python that runs here for its stubs."""
        folders = [str(folder) for folder in self.library_folders]
        inherited = [value for value in [os.environ.get("LD_LIBRARY_PATH", "")] if value]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        ours = {"LD_LIBRARY_PATH": os.pathsep.join(folders + inherited), "PATH": path}
        return {**KEEP_FREED_MEMORY, **os.environ, **ours}


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def package_folder(name: str) -> Path | None:
    """Where an installed package lies, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def find_installation(tritonserver: Path | None = None) -> Installation:
    """Take the path that was given, else the container's tritonserver, else the wheel's; ServerError where none is."""
    if tritonserver is not None:
        if not os.access(tritonserver, os.X_OK) or not tritonserver.is_file():
            raise ServerError(f"--tritonserver: expected an executable file, got {tritonserver}")
        return Installation(tritonserver.resolve())
    if CONTAINER_TRITONSERVER.is_file():
        return Installation(CONTAINER_TRITONSERVER)
    wheel = package_folder("pytriton")
    if wheel is not None:
        in_wheel = wheel / "tritonserver" / "bin" / "tritonserver"
        if in_wheel.is_file():
            return Installation(in_wheel)
    raise ServerError(
        f"tritonserver: expected one at {CONTAINER_TRITONSERVER}, in the package nvidia-pytriton, or by --tritonserver "
        "PATH, got none: run `make setup`"
    )


def backend_directory(installation: Installation, folder: Path) -> Path:
    """Return the installation's own backends where onnxruntime is among them, else `folder`, filled with copies of the
    Python backend and of our stand-in.

    Copies, because Triton refuses a backend library that a link leads out of the backend directory.
    """
    if (installation.backends / "onnxruntime").is_dir():
        return installation.backends
    python = folder / "python"
    python.mkdir()
    for source in [*(installation.backends / "python").glob("*.*"), installation.stub]:
        shutil.copy(source, python)
    shutil.copytree(ROOT / "backends" / "onnxruntime", folder / "onnxruntime")
    return folder
