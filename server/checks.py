"""What must hold before Triton is started, and what to do where it does not.

Each check returns the problems it found, none where all is well; all of them are reported at once.
"""

import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from .installation import Installation, python_version
from .options import ServerOptions, port_is_free

MIN_SHARED_MEMORY_BYTES = 128 << 20
SHARED_MEMORY = Path("/dev/shm")
DEFAULT_MODEL_FILES = {"python": "model.py", "onnxruntime": "model.onnx"}


def find_problems(options: ServerOptions, installation: Installation) -> list[str]:
    """Run every check; each problem is one sentence that ends in the cure."""
    return [
        *check_numpy(installation),
        *check_stub(installation),
        *check_ports(options),
        *check_shared_memory(),
        *check_repository(options.repository),
    ]


def check_numpy(installation: Installation) -> list[str]:
    """The wheel's stub was built for numpy 1; with numpy 2 it silently reads garbage from every tensor."""
    try:
        version = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        return ["numpy: expected numpy < 2, got none installed: pip install 'numpy<2'"]
    if installation.is_wheel and int(version.split(".")[0]) >= 2:
        return [
            f"numpy: expected numpy < 2, with which this Triton's Python backend was built, got {version}, "
            "which makes it read wrong pixels: pip install 'numpy<2'"
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
    """Each port must be free on the address that the server binds to."""
    problems = []
    for name, port in options.ports.items():
        if not port_is_free(options.host, port):
            problems.append(
                f"port {port} ({name}): expected it to be free on {options.host}, got one in use: stop what uses it "
                f"(`ss -ltnp 'sport = :{port}'` shows it), or give --{name}-port another number"
            )
    return problems


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


def check_repository(repository: Path) -> list[str]:
    """Every model must have a config.pbtxt that parses, a version folder, and its file in it."""
    paths = sorted(repository.glob("*/config.pbtxt"))
    if not paths:
        return [
            f"model repository: expected folders with a config.pbtxt in {repository}, got none: run `make repository`"
        ]
    return [problem for path in paths for problem in check_model(path)]


def check_model(path: Path) -> list[str]:
    try:
        config = read_config(path)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        return [f"{path}: expected a Triton model configuration, got: {error}"]
    versions = [folder for folder in path.parent.iterdir() if folder.is_dir() and folder.name.isdigit()]
    if not versions:
        return [f"{path.parent}: expected a version folder such as 1/, got none: run `make export repository`"]
    file = config.default_model_filename or DEFAULT_MODEL_FILES.get(config.backend)
    if file is None:  # an ensemble, or a backend whose files we do not know
        return []
    return [
        f"{folder / file}: expected the model's file, got none: run `make export repository`"
        for folder in versions
        if not (folder / file).exists()
    ]


def read_config(path: Path) -> ModelConfig:
    """Parse a config.pbtxt with Triton's own protobuf; raises text_format.ParseError."""
    return text_format.Parse(path.read_text("utf-8"), ModelConfig())
