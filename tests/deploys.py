"""Deploys and failed deploys while 16 clients ask: `python -m tests.deploys [--deploys 20 --failures 5]`.

Each version answers every image with a class of its own, so that each answer tells which one gave it.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from export.__main__ import main as export
from server.installation import ROOT, package_folder
from server.options import ServerOptions

from .asking import PROTOCOLS, connect_to, tensor
from .running import child, server_options

BIAS = "_fc.bias"  # of efficientnet_lite0, (classes,)
CERTAIN = 1000.0  # added to a logit: its class has the score 1 for every image
COMMAND_TIMEOUT_S = 120
Change = Callable[[onnx.ModelProto], None]


def server_command(command: str, repository: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "server", command, "--model-repository", repository, *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)


def changed_export(exported: Path, folder: Path, change: Change) -> Path:
    """A copy of an export with another network, for which its manifest vouches."""
    shutil.copytree(exported, folder, ignore=shutil.ignore_patterns("repository"), dirs_exist_ok=True)
    model = onnx.load(exported / "model.onnx")
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return vouched(folder)


def vouched(folder: Path) -> Path:
    """Write the sha256 of the model.onnx that is there into the manifest beside it."""
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["onnx"]["sha256"] = sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return folder


def always(class_id: int) -> Change:
    """Have a network answer that class for every image."""
    return lambda model: add_to_bias(model, class_id, CERTAIN)


def add_to_bias(model: onnx.ModelProto, class_id: int, value: float) -> None:
    (bias,) = (one for one in model.graph.initializer if one.name == BIAS)
    values = numpy_helper.to_array(bias).copy()
    values[class_id] += value
    bias.CopyFrom(numpy_helper.from_array(values, BIAS))


def golden_folder(folder: Path, photo: Path, label: str) -> Path:
    """`folder`/LABEL/photo, where LABEL is what it must get."""
    (folder / label).mkdir(parents=True, exist_ok=True)
    shutil.copy(photo, folder / label)
    return folder


@dataclass(frozen=True)
class Asked:
    """One request: when it was sent and answered, and the class, or why there is none."""

    sent_s: float
    answered_s: float
    class_id: int | None
    score: float
    error: str


class Traffic:
    """Clients that ask `pipeline` about one photograph, each as soon as it has its answer; a context manager."""

    def __init__(self, options: ServerOptions, photo: bytes, clients_each: int) -> None:
        self.options, self.photo = options, np.frombuffer(photo, np.uint8)[np.newaxis]
        self.asked: list[Asked] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(protocol,), daemon=True)
            for protocol in PROTOCOLS
            for _ in range(clients_each)
        ]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(COMMAND_TIMEOUT_S)
        assert not any(thread.is_alive() for thread in self._threads), "a request was never answered"

    def _ask(self, protocol: str) -> None:
        client = connect_to(self.options, protocol)
        while not self._stop.is_set():
            sent_s = time.monotonic()
            class_id, score, error = None, 0.0, ""
            try:
                answer = client.infer("pipeline", [tensor(protocol, "raw_image", self.photo)], parameters={"top_k": 1})
                class_id, score = int(answer.as_numpy("class_id")[0, 0]), float(answer.as_numpy("score")[0, 0])
            except Exception as failure:  # of any kind: a request is lost
                error = str(failure)
            self.asked.append(Asked(sent_s, time.monotonic(), class_id, score, error))
        client.close()

    @property
    def lost(self) -> list[Asked]:
        return [one for one in self.asked if one.error]

    def wrong(self, served: list[tuple[float, float, int]]) -> list[Asked]:
        """Answers of another class than those that served at some time between the question and the answer.

        `served` has a class with the times between which its version may have answered.
        """
        return [
            one
            for one in self.asked
            if not one.error
            and not any(
                one.class_id == class_id and start <= one.answered_s and one.sent_s <= end and one.score > 0.5
                for start, end, class_id in served
            )
        ]


@dataclass
class Run:
    """What a run of deploys found; `seconds` are those of each deploy that succeeded."""

    traffic: Traffic
    served: list[tuple[float, float, int]]
    seconds: list[float]
    refusals: list[str]

    def __str__(self) -> str:
        latencies_ms = 1000 * np.array([one.answered_s - one.sent_s for one in self.traffic.asked])
        p50, p99, most = np.percentile(latencies_ms, (50, 99, 100))
        return (
            f"{len(self.seconds)} deploys, {len(self.refusals)} failed deploys, {len(self.traffic.asked)} requests: "
            f"{len(self.traffic.lost)} lost, {len(self.traffic.wrong(self.served))} wrong; "
            f"a deploy took {np.median(self.seconds):.1f} s (median); requests p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
            f"longest {most:.0f} ms"
        )


FAILURES: dict[str, Callable[[Path], object]] = {
    "no network": lambda folder: (folder / "model.onnx").write_bytes(b"no network"),
    "weights that are no number": lambda folder: rewrite(folder, lambda model: add_to_bias(model, 0, float("nan"))),
    "another class than the golden one": lambda folder: rewrite(folder, always(999)),
}


def rewrite(folder: Path, change: Change) -> None:
    model = onnx.load(folder / "model.onnx")
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def run_deploys(
    options: ServerOptions, exported: Path, folder: Path, photo: Path, deploys: int, failures: int, clients_each: int
) -> Run:
    """Deploy version after version, and between them what must be refused, under load; asserts each outcome."""
    repository = options.repository
    with Traffic(options, photo.read_bytes(), clients_each) as traffic:
        run = Run(traffic, [(0, float("inf"), 967)], [], [])  # espresso, the answer of the network as it is trained
        kinds = list(FAILURES)
        for number in range(deploys):
            while len(run.refusals) * deploys < failures * (number + 1):
                run.refusals.append(refused(repository, exported, folder, photo, kinds[len(run.refusals) % len(kinds)]))
            deploy_next(run, repository, exported, folder, photo, class_id=10 + number)
        time.sleep(0.5)
    return run


def deploy_next(run: Run, repository: Path, exported: Path, folder: Path, photo: Path, class_id: int) -> None:
    new = changed_export(exported, folder / "new", always(class_id))
    golden = golden_folder(folder / f"golden-{class_id}", photo, str(class_id))
    begun_s = time.monotonic()
    outcome = server_command("deploy", repository, new, "--golden", golden)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    ended_s = time.monotonic()
    start, _, before = run.served[-1]
    run.served[-1] = (start, ended_s, before)
    run.served.append((begun_s, float("inf"), class_id))
    run.seconds.append(ended_s - begun_s)
    shutil.rmtree(new)


def refused(repository: Path, exported: Path, folder: Path, photo: Path, kind: str) -> str:
    """The message of a deploy that fails."""
    bad = changed_export(exported, folder / "bad", lambda model: None)
    FAILURES[kind](bad)
    outcome = server_command("deploy", repository, vouched(bad), "--golden", golden_folder(folder / "g", photo, "967"))
    assert outcome.returncode == 1, f"{kind}: {outcome.stdout}"
    shutil.rmtree(bad)
    return outcome.stderr


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deploys", description=__doc__)
    parser.add_argument("--deploys", type=int, default=20)
    parser.add_argument("--failures", type=int, default=5)
    numbers = parser.parse_args()
    package = package_folder("skimage")
    assert package is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exported, repository = folder / "exported", folder / "repository"
        arguments = ["--recipe", "efficientnet_lite0", "--output", str(exported), "--repository", str(repository)]
        assert export(["model", *arguments]) == 0
        options = server_options(repository)
        with child(launcher(options), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            assert process.stdout is not None
            while "Ctrl-C stops it" not in (line := process.stdout.readline()):
                assert line, "the server ended before it was ready"
            photo = package / "data" / "coffee.png"
            run = run_deploys(options, exported, folder, photo, numbers.deploys, numbers.failures, clients_each=8)
            process.terminate()
            said = process.stdout.read()
    print(f"{run}; the watchdog said: {said.strip() or 'nothing'}")
    return int(bool(run.traffic.lost or run.traffic.wrong(run.served)))


def launcher(options: ServerOptions) -> list[str]:
    ports = [word for name, port in options.ports.items() for word in (f"--{name}-port", str(port))]
    words = ["--model-repository", str(options.repository), "--log", str(options.log), *ports]
    return [sys.executable, "-m", "server", *words]


if __name__ == "__main__":
    sys.exit(main())
