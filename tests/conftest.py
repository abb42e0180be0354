"""Servers that are started once a run, and the photographs that they are asked about."""

import ctypes.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from export.__main__ import main as export
from server.installation import package_folder
from server.process import TritonServer
from tests.running import started

SHARED = Path(__file__).resolve().parents[2] / "shared"
RESNET50_WEIGHTS = SHARED / "weights" / "resnet50_imagenet_pq.pth.xz"


def need_shared(path: Path) -> Path:
    """Skip where the folder of trained weights and photographs is not beside the project."""
    if not path.exists():
        pytest.skip(f"needs {path}")
    return path


def need_program(name: str, package: str) -> str:
    """Skip where a program is absent, naming its Debian package; in CI, which installs it first, fail."""
    path = shutil.which(name)
    if path is None:
        lacks(f"needs {name}: apt-get install {package}")
    return path


def need_library(name: str, package: str) -> None:
    """The same for a shared library."""
    if ctypes.util.find_library(name) is None:
        lacks(f"needs lib{name}: apt-get install {package}")


def lacks(message: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def photos() -> Path:
    """The folder of photographs in the scikit-image wheel."""
    package = package_folder("skimage")
    assert package is not None
    return package / "data"


def export_repository(folder: Path, *arguments: str) -> Path:
    """Export into `folder` by `python -m export model`, and return the repository that it also writes."""
    repository = folder / "repository"
    assert export(["model", *arguments, "--output", str(folder), "--repository", str(repository)]) == 0
    return repository


@pytest.fixture(scope="session")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of efficientnet_lite0 with its trained weights."""
    return export_repository(tmp_path_factory.mktemp("lite0"), "--recipe", "efficientnet_lite0")


@pytest.fixture
def own_repository(lite0: Path, tmp_path: Path) -> Path:
    """A copy of it, for a server that is no other test's."""
    return Path(shutil.copytree(lite0, tmp_path / "repository"))


@pytest.fixture(scope="session")
def server(lite0: Path) -> Iterator[TritonServer]:
    """A Triton that serves efficientnet_lite0."""
    with started(lite0) as server:
        yield server


@pytest.fixture(scope="session")
def resnet50_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A Triton that serves resnet50 with trained weights."""
    weights = need_shared(RESNET50_WEIGHTS)
    with started(export_repository(tmp_path_factory.mktemp("resnet50"), "--weights", str(weights))) as server:
        yield server


@pytest.fixture(scope="session")
def shared_photos() -> list[Path]:
    """Photographs as ImageNet has them."""
    return sorted(need_shared(SHARED / "images" / "photos").iterdir())


@pytest.fixture(scope="session")
def shared_odd() -> list[Path]:
    """Odd, damaged and hostile image files."""
    return sorted(need_shared(SHARED / "images" / "odd").iterdir())
