"""The client as a package of its own: its wheel, installed alone, and the examples in its docstrings."""

import doctest
import importlib
import json
import pkgutil
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import client
from server.process import TritonServer
from tests.running import grpc_url, http_url

ROOT = Path(__file__).resolve().parent.parent
MODULES = [name for _, name, _ in pkgutil.walk_packages(client.__path__, "client.") if name != "client.__main__"]


def run(*command: object, **options: object) -> "subprocess.CompletedProcess[str]":
    words = [str(word) for word in command]
    outcome = subprocess.run(words, capture_output=True, text=True, timeout=250, **options)  # type: ignore[call-overload]
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT / "client")
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment, with nothing but the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--prefer-binary", wheel)
    return folder / "bin"


def test_what_is_in_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {f"triton_classify/{path.relative_to(ROOT / 'client')}" for path in (ROOT / "client").rglob("*.py")}
    assert modules <= set(names)
    assert {"triton_classify/py.typed", "triton_classify/command_line/report.html"} <= set(names)
    assert not [name for name in names if "examples" in name or "__pycache__" in name or name.endswith(".toml")]
    assert all(name.startswith("triton_classify") for name in names)  # dist-info too


PROGRAM = """
import asyncio, json, sys
import triton_classify
from triton_classify import AsyncPipelineClient, PipelineClient

async def label(url):
    async with AsyncPipelineClient(url, timeout_s=20) as client:
        return (await client.classify(sys.argv[1], top_k=1)).classes[0].label

labels = []
for url in sys.argv[2:]:
    with PipelineClient(url, timeout_s=20) as client:
        labels.append(client.classify(sys.argv[1], top_k=1).classes[0].label)
    labels.append(asyncio.run(label(url)))
print(json.dumps({"labels": labels, "file": triton_classify.__file__}))
"""


@pytest.mark.parametrize("page", ["README.md", "client/README.md"])
def test_the_example_of_a_readme(
    page: str, environment: Path, server: TritonServer, photos: Path, tmp_path: Path
) -> None:
    """Its first Python block, with the running server's address and a photograph in its folder."""
    shutil.copy(photos / "coffee.png", tmp_path / "photo.jpg")
    blocks = re.findall(r"```python\n(from triton_classify .*?)```", (ROOT / page).read_text(), re.DOTALL)
    example = blocks[0].replace("grpc://127.0.0.1:8001", grpc_url(server))
    outcome = run(environment / "python", "-c", example, cwd=tmp_path)
    assert [line.split(maxsplit=2) for line in outcome.stdout.splitlines()] == [
        ["95.67%", "967", "espresso"],
        ["1.36%", "968", "cup"],
        ["0.69%", "925", "consomme"],
    ]


def test_installed_alone(environment: Path, server: TritonServer, photos: Path, tmp_path: Path) -> None:
    urls = [grpc_url(server), http_url(server)]
    outcome = run(environment / "python", "-c", PROGRAM, photos / "coffee.png", *urls, cwd=tmp_path)
    answer = json.loads(outcome.stdout)
    assert answer["labels"] == ["espresso"] * 4
    assert Path(answer["file"]).is_relative_to(environment.parent)


def test_the_command_without_the_extras(environment: Path, server: TritonServer, photos: Path, tmp_path: Path) -> None:
    assert "usage: triton-classify" in run(environment / "triton-classify", "--help", cwd=tmp_path).stdout
    command = [environment / "triton-classify", "classify", photos / "coffee.png", "--url", grpc_url(server)]
    assert "espresso" in run(*command, "--format", "jsonl", cwd=tmp_path).stdout


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str, server: TritonServer, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example is run as it stands, but for the server's address, where coffee.png is."""
    monkeypatch.chdir(photos)
    module = importlib.import_module(name)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        if found.docstring and found.examples:
            text = found.docstring.replace("grpc://127.0.0.1:8001", grpc_url(server))
            runner.run(parser.get_doctest(text, found.globs, found.name, found.filename, found.lineno))
    assert runner.failures == 0


def test_that_docstrings_have_examples() -> None:
    """So that the test above does not pass for want of any."""
    modules = map(importlib.import_module, MODULES)
    found = [test.name for module in modules for test in doctest.DocTestFinder().find(module) if test.examples]
    assert {"client.pipeline.PipelineClient.classify", "client.async_pipeline.AsyncPipelineClient"} <= set(found)
