"""What must hold before Triton is started, and what to do where it does not.

Each check returns the problems it found, none where all is well; all of them are reported at once.
"""

import errno
import importlib.metadata
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.check.files import find_unloadable
from export.check.models import variant_names

from .installation import Installation, python_version
from .options import ServerOptions, bind_error

MIN_SHARED_MEMORY_BYTES = 128 << 20
SHARED_MEMORY = Path("/dev/shm")
STACK_BYTES = 256 << 20  # an HTTP body that arrives in many pieces overflows the usual 8 MB and kills the server


def find_problems(options: ServerOptions, installation: Installation) -> list[str]:
    """Run every check; each problem is one sentence that ends in the cure."""
    return [
        *check_numpy(installation),
        *check_stub(installation),
        *check_ports(options),
        *check_shared_memory(),
        *check_stack(),
        *check_paths(options.repository),
        *check_repository(options.repository, options.variant),
    ]


def check_numpy(installation: Installation) -> list[str]:
    """The wheel's stub was built for numpy 1; with numpy 2 it silently reads garbage from every tensor."""
    try:
        version = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        return [f"numpy: expected numpy < 2, got none installed: {sys.executable} -m pip install 'numpy<2'"]
    if installation.is_wheel and int(version.split(".")[0]) >= 2:
        return [
            f"numpy: expected numpy < 2, with which this Triton's Python backend was built, got {version}, "
            f"which makes it read wrong pixels: {sys.executable} -m pip install 'numpy<2'"
        ]
    return []


def check_stub(installation: Installation) -> list[str]:
    """Start the process that runs Python models once, without arguments: it must get as far as asking for them."""
    if not installation.stub.is_file():
        return [
            f"Python backend: expected a stub for Python {python_version()}, got none at {installation.stub}: "
            "use Python 3.11 or 3.12"
        ]
    try:
        outcome = subprocess.run(
            [installation.stub], env=installation.environment(), capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"Python backend: expected {installation.stub} to start, got {error}: run `make setup` again"]
    if outcome.returncode != 127:  # the loader's own exit status where a library is missing
        return []
    version = python_version()
    return [
        f"libpython: expected libpython{version}.so.1.0 for the Python backend, got: {outcome.stderr.strip()}: "
        f"apt-get install libpython{version}, or PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {version}"
    ]


def check_ports(options: ServerOptions) -> list[str]:
    """Each port of Triton must be free on the address that the server binds to."""
    if len(set(options.ports.values())) < len(options.ports):
        return [f"ports: expected four different ones, got {options.ports}"]
    return [problem for name, port in options.triton_ports.items() for problem in check_port(options.host, name, port)]


def check_port(host: str, name: str, port: int) -> list[str]:
    error = bind_error(host, port)
    if error is None:
        return []
    if error.errno == errno.EADDRINUSE:
        return [
            f"port {port} ({name}): expected it to be free on {host}, got one in use: stop what uses it "
            f"(`ss -ltnp 'sport = :{port}'` shows it), or give --{name}-port another number"
        ]
    return [f"port {port} ({name}): expected to bind to {host}, got: {error.strerror}"]


def check_shared_memory() -> list[str]:
    """Tensors travel between Triton and its Python models through /dev/shm."""
    if not SHARED_MEMORY.is_dir() or not os.access(SHARED_MEMORY, os.W_OK):
        return [f"{SHARED_MEMORY}: expected a folder that can be written to, got none: mount a tmpfs there"]
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < MIN_SHARED_MEMORY_BYTES:
        return [
            f"{SHARED_MEMORY}: expected at least {MIN_SHARED_MEMORY_BYTES >> 20} MB free, got {free >> 20} MB: "
            "in Docker give --shm-size=1g, in Compose shm_size"
        ]
    return []


def check_stack() -> list[str]:
    """The launcher raises the soft limit of the stack as far as the hard one allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard == resource.RLIM_INFINITY or hard >= STACK_BYTES:
        return []
    return [
        f"stack: expected a hard limit of at least {STACK_BYTES >> 20} MB, without which a photo of 5 MB sent by curl "
        f"kills Triton, got {hard >> 20} MB: raise it, in Docker by --ulimit stack={STACK_BYTES}"
    ]


def check_paths(repository: Path) -> list[str]:
    """Triton starts the processes of Python models through a shell, without quotes, and in ASCII."""
    return [
        f"{what}: expected a path of ASCII letters, digits and ._/+@%=:,- for Triton's sake, got '{path}': {cure}"
        for what, path, cure in (
            ("model repository", repository, "move it, or mount it elsewhere"),
            ("temporary folder", Path(tempfile.gettempdir()), "set TMPDIR to another"),
        )
        if not re.fullmatch(r"[\w./+@%=:,-]+", str(path), re.ASCII)
    ]


def check_repository(repository: Path, variant: str | None) -> list[str]:
    """Every model must have a config.pbtxt that parses, a version folder, and its file in it."""
    if not any(repository.glob("*/config.pbtxt")):
        return [
            f"model repository: expected folders with a config.pbtxt in {repository}, got none: run `make repository`"
        ]
    models = sorted(path for path in repository.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not any(version.name.isdigit() for model in models for version in model.iterdir()):
        return [
            f"model repository: expected version folders such as 1/ in {repository}, got none: "
            "run `make export repository`"
        ]
    return [*check_variant(repository, variant), *map(str, find_unloadable(repository, variant))]


def check_variant(repository: Path, variant: str | None) -> list[str]:
    """Triton takes config.pbtxt of every model, and says nothing, where no model has a variant of that name."""
    names = variant_names(repository)
    if variant is None or variant in names:
        return []
    return [
        f"--model-config-name: expected one of {names} of the folders configs/ in {repository}, got {variant}: "
        "leave it out to serve each model's config.pbtxt"
    ]


def read_config(path: Path) -> ModelConfig:
    """Parse a config.pbtxt with Triton's own protobuf; raises text_format.ParseError."""
    return text_format.Parse(path.read_text("utf-8"), ModelConfig())
