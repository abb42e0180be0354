"""The other servers: how each of rivals/ is started, and the requests that it takes."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from server.installation import ROOT

from .figures import Group
from .processes import stop
from .requests import FORM, HOST, JSON, RAW, Encoding
from .rivals.settings import Settings

CORES = os.cpu_count() or 1
READY_TIMEOUT_S = 120
POLL_S = 0.2
LOG_LINES = 15
PACKAGE = "benchmarks.comparison.rivals"


def uvicorn(module: str, workers: int) -> list[str]:
    app = ["uvicorn", f"{PACKAGE}.{module}:app", "--host", HOST, "--port", "{port}", "--workers", str(workers)]
    return [*app, "--no-access-log", "--log-level", "warning"]


@dataclass(frozen=True, kw_only=True)
class Other:
    """A server by its command; `arguments` go to `python -m`. Each encoding is compared, under the name of its key."""

    name: str
    group: Group
    arguments: Sequence[str]
    encodings: dict[str, Encoding]
    transform: str = "pillow"
    is_gateway: bool = False


FASTAPI = uvicorn("fastapi_server", CORES)
LITSERVE = [f"{PACKAGE}.litserve_server"]
BENTOML = ["bentoml", "serve", f"{PACKAGE}.bentoml_server:Classifier", "--host", HOST, "--port", "{port}"]


def with_each_transform(name: str, arguments: Sequence[str], encoding: Encoding) -> list[Other]:
    groups = {"pillow": (Group.PILLOW, "Pillow"), "ours": (Group.OURS, "our transform")}
    return [
        Other(
            name=f"{name}, {words}",
            group=group,
            arguments=arguments,
            encodings={f"{name}, {words}": encoding},
            transform=transform,
        )
        for transform, (group, words) in groups.items()
    ]


OTHERS = [
    Other(
        name="tutorial gateway",
        group=Group.TUTORIAL,
        arguments=uvicorn("tutorial_gateway", 1),
        encodings={"tutorial gateway": JSON},
        is_gateway=True,
    ),
    Other(
        name="improved gateway",
        group=Group.PILLOW,
        arguments=uvicorn("improved_gateway", CORES),
        encodings={"improved gateway, raw bytes": RAW, "improved gateway, base64": JSON},
        is_gateway=True,
    ),
    *with_each_transform("FastAPI", FASTAPI, RAW),
    *with_each_transform("LitServe", LITSERVE, RAW),
    *with_each_transform("BentoML", BENTOML, FORM),
]


@dataclass(frozen=True, kw_only=True)
class Running:
    """One that has been started."""

    other: Other
    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def wait_until_ready(self, file: Path) -> None:
        """Return once it answers for `file`; raises BenchmarkError with the end of its log where it does not."""
        encoding = next(iter(self.other.encodings.values()))
        deadline = time.monotonic() + READY_TIMEOUT_S
        problem: Exception | None = None
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                encoding.ask(self.port, file)
                return
            except (OSError, BenchmarkError) as error:
                problem = error
                time.sleep(POLL_S)
        last = self.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
        raise BenchmarkError(
            "\n".join(
                [f"{self.other.name}: expected an answer within {READY_TIMEOUT_S} s, got {problem}; its log:", *last]
            )
        )


def start_other(stack: ExitStack, other: Other, python: Path, settings: Settings, logs: Path) -> Running:
    """Start it, without waiting; `stack` will stop it, and remove its temporary files (BentoML leaves some)."""
    temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))
    log = logs / f"{settings.triton_model}, {other.name}.log".replace(", ", "-").replace(" ", "-")
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(python), "-m", *(word.format(port=settings.port) for word in other.arguments)],
            cwd=ROOT,
            env={**settings.environment(), "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only us
        )
    stack.callback(stop, process)
    return Running(other=other, process=process, port=int(settings.port), log=log)
