"""A generator, seen from `python -m benchmarks.comparison`."""

import json
import selectors
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from benchmarks.comparison.processes import stop
from benchmarks.errors import BenchmarkError
from server.installation import ROOT

JOB_TIMEOUT_S = 300


class Generator:
    """`python -m benchmarks.comparison.load.NAME ARGUMENTS`, which waits for jobs. A context manager.

    All but `receive` raise BenchmarkError where the generator fails or answers too late.
    """

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.comparison.load.{name}", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only us
        )

    def __enter__(self) -> "Generator":
        return self

    def __exit__(self, *error: object) -> None:
        stop(self.process)

    def send(self, job: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise BenchmarkError(f"load generator {self.name}: expected it to run, it has ended") from error

    def receive(self) -> dict[str, Any]:
        """The answer to the job that was sent first; {"error": text} where there is none, or a bad one."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(JOB_TIMEOUT_S) else b""
        if line:
            return json.loads(line)  # type: ignore[no-any-return]
        self.process.kill()  # a late answer must not be taken for that to another job
        return {"error": f"none within {JOB_TIMEOUT_S} s, or before its end"}

    def checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            raise BenchmarkError(f"load generator {self.name}: expected an answer, got {answer['error']}")
        return answer

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        self.send(job)
        return self.checked(self.receive())


def start(stack: ExitStack, name: str, *arguments: str, count: int = 1) -> list[Generator]:
    """Start `count` of them, which `stack` will stop, and wait until they are ready."""
    generators = [stack.enter_context(Generator(name, *arguments)) for _ in range(count)]
    for each in generators:
        each.checked(each.receive())
    return generators
