"""`python -m benchmarks.comparison`: the load generator, the arithmetic, the transforms, the ensemble through it."""

import contextlib
import http.server
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.comparison.__main__ import parser
from benchmarks.comparison.answers import check_class
from benchmarks.comparison.contenders import EnsembleOverHttp, InProcess
from benchmarks.comparison.environment import REQUIREMENTS
from benchmarks.comparison.figures import Group, Measurement, combined
from benchmarks.comparison.load.generator import Generator, start
from benchmarks.comparison.load.recorder import WINDOW_TURNS, Duration
from benchmarks.comparison.plot import draw
from benchmarks.comparison.processes import awake, memory_mb, pause, stop, with_descendants
from benchmarks.comparison.ratios import Run
from benchmarks.comparison.report import report, write_csv
from benchmarks.comparison.requests import ENCODINGS, HOST, JSON, RAW, TRITON
from benchmarks.comparison.rivals.transforms import MEAN, STD, TRANSFORMS
from benchmarks.comparison.targets import targets
from benchmarks.errors import BenchmarkError
from benchmarks.images import LONGER_SIDES, PHOTOS, write_photos_of_several_sizes
from benchmarks.reference import reference_input
from server.process import TritonServer
from tests.test_setup import read_lines

SHORT = Duration(warm_up_s=0.1, window_s=0.4)


@dataclass
class Answering:
    """A server on `port`, what it was sent, and how many requests it had at a time."""

    port: int = 0
    bodies: list[bytes] = field(default_factory=list)
    most_at_a_time: int = 0
    at_a_time: int = 0


@contextlib.contextmanager
def answering(delay_s: float, statuses: Sequence[int] = (200,)) -> Iterator[Answering]:
    """A server that answers after a delay, with one status after the other."""
    state, codes, lock = Answering(), itertools.cycle(statuses), threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                state.bodies.append(body)
                state.at_a_time += 1
                state.most_at_a_time = max(state.most_at_a_time, state.at_a_time)
            time.sleep(delay_s)
            with lock:
                state.at_a_time -= 1
                status = next(codes)
            self.send_response(status)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(scope="module")
def generator() -> Iterator[Generator]:
    with ExitStack() as stack:
        yield start(stack, "http")[0]


@pytest.fixture(scope="module")
def sized_photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return sorted(write_photos_of_several_sizes(tmp_path_factory.mktemp("photos")).iterdir())


def job(port: int, requests: Path, concurrency: int, duration: Duration = SHORT) -> dict[str, Any]:
    load = {"host": HOST, "port": port, "requests": str(requests), "concurrency": concurrency}
    return {**load, "warm_up_s": duration.warm_up_s, "window_s": duration.window_s}


def test_the_generator_keeps_as_many_in_flight_and_times_each(generator: Generator, tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.write_bytes(file.name.encode() * 300_000)  # more than one segment, and than the server's buffer
    with answering(0.05) as server:
        result = generator.ask(job(server.port, RAW.write(files, tmp_path), concurrency=4))
    assert server.most_at_a_time == 4
    assert set(server.bodies) == {b"a" * 300_000, b"b" * 300_000}
    assert result["errors"] == 0
    assert result["seconds"] >= SHORT.window_s
    # 4 in flight for 50 ms each are 80/s at most; the window may begin just after 4 and end just behind 4.
    assert 4 <= len(result["latencies_ms"]) <= 80 * result["seconds"] + 4
    assert min(result["latencies_ms"]) >= 50


def test_errors_are_counted_and_not_timed(generator: Generator, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"x")
    with answering(0.005, [200, 500, 503]) as server:
        result = generator.ask(job(server.port, RAW.write([tmp_path / "image"], tmp_path), concurrency=1))
    # Errors count from the start, right answers in the window; together they are all that was asked, but the warm-up's.
    right_in_warm_up = len(server.bodies) - result["errors"] - len(result["latencies_ms"])
    assert right_in_warm_up >= 0
    assert abs(result["errors"] - 2 * (len(server.bodies) - result["errors"])) <= 2  # two of three
    assert len(result["latencies_ms"]) > 0


def test_each_phase_lasts_until_all_in_flight_were_answered(generator: Generator, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"x")
    with answering(0.1) as server:
        none = Duration(warm_up_s=0, window_s=0)
        folder = RAW.write([tmp_path / "image"], tmp_path)
        result = generator.ask(job(server.port, folder, concurrency=3, duration=none))
    assert len(result["latencies_ms"]) == 3 * WINDOW_TURNS
    assert len(server.bodies) >= 3 + 3 * WINDOW_TURNS


def test_nobody_who_listens_is_told(generator: Generator, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"x")
    with answering(0) as server:
        pass
    with pytest.raises(BenchmarkError, match="load generator http: expected an answer, got ConnectionRefusedError"):
        generator.ask(job(server.port, RAW.write([tmp_path / "image"], tmp_path), concurrency=2))


def test_figures_of_several_generators() -> None:
    random = np.random.default_rng(0)
    parts = [random.gamma(2, 10, 501).tolist(), random.gamma(9, 10, 77).tolist()]
    results = [
        {"latencies_ms": part, "seconds": seconds, "errors": errors}
        for part, seconds, errors in zip(parts, (2.0, 0.5), (3, 4), strict=True)
    ]
    figures = combined(results)
    assert figures.images_per_s == pytest.approx(501 / 2 + 77 / 0.5)
    assert (figures.p50_ms, figures.p99_ms) == tuple(np.percentile(np.concatenate(parts), [50, 99]))
    assert figures.errors == 7
    with pytest.raises(BenchmarkError, match="load: expected answers, got 9 errors"):
        combined([{"latencies_ms": [], "seconds": 1.0, "errors": 9}])


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_is_the_references(name: str, sized_photos: list[Path]) -> None:
    assert len(sized_photos) == len(PHOTOS) * len(LONGER_SIDES)
    for path in sized_photos:
        file = path.read_bytes()
        actual, expected = TRANSFORMS[name](file), reference_input(file, mean=MEAN, std=STD)
        assert (actual.dtype.name, actual.shape) == ("float32", (3, 224, 224))
        # One level of 255 through the smallest std, 0.224, is 0.0175: `preprocess` may differ by that.
        np.testing.assert_allclose(actual, expected, rtol=0, atol=0.0176, err_msg=path.name)


def test_only_a_class_that_is_nearly_as_good_is_right() -> None:
    logits = np.array([0.0, 9.95, 10.0, 9.0], np.float32)
    check_class("server", Path("cat.jpg"), 1, logits)
    with pytest.raises(BenchmarkError, match=r"server: expected class 2 for cat\.jpg, got 3, whose logit is 10%"):
        check_class("server", Path("cat.jpg"), 3, logits)


def test_a_process_is_paused_with_all_that_it_started() -> None:
    inner = "import time\nwhile True: time.sleep(0.01)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    process = subprocess.Popen([sys.executable, "-c", outer])
    try:
        deadline = time.monotonic() + 10
        while len(family := with_descendants([process.pid])) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(family) == 2
        assert memory_mb([process.pid]) > memory_mb(family - {process.pid}) > 1
        pause(process.pid)
        assert wait_for_states(family, "T")
        with awake(process.pid):
            assert wait_for_states(family, "S")
        assert wait_for_states(family, "T")
    finally:
        stop(process)
    assert with_descendants(family) == set()


def wait_for_states(pids: set[int], wanted: str) -> bool:
    """Whether all processes are in one state of proc(5) within 5 s."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if all(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == wanted for pid in pids):
            return True
        time.sleep(0.01)
    return False


def rows(contender: str, group: Group, rates: dict[int, list[float]], network: str = "trivial") -> list[Measurement]:
    """A measurement for each rate, by concurrency and round; a request takes as long as the concurrency says."""
    return [
        Measurement(
            network=network,
            contender=contender,
            group=group,
            concurrency=concurrency,
            round=number,
            images_per_s=rate,
            p50_ms=1000 * concurrency / rate,
            p99_ms=3000 * concurrency / rate,
            errors=0,
            memory_mb=100.0 + 5 * number,
        )
        for concurrency, of_rounds in rates.items()
        for number, rate in enumerate(of_rounds, start=1)
    ]


def made_up() -> Run:
    return Run(
        [
            *rows(
                "ensemble, FP32, HTTP", Group.ENSEMBLE, {1: [90, 100, 110], 16: [400, 200, 300], 64: [300, 300, 300]}
            ),
            *rows("ensemble, UINT8, HTTP", Group.ENSEMBLE, {1: [90, 50, 50], 16: [500, 350, 390], 64: [390, 390, 390]}),
            *rows("client preprocessing, gRPC", Group.DIRECT, {1: [100, 90, 100], 16: [390, 390, 390]}),
            *rows("tutorial gateway", Group.TUTORIAL, {1: [50, 50, 50], 16: [100, 50, 150]}),
            *rows("FastAPI, Pillow", Group.PILLOW, {1: [100, 100, 100], 16: [320, 280, 300]}),
            *rows("LitServe, Pillow", Group.PILLOW, {1: [20, 20, 20], 16: [299, 299, 299]}),
            *rows("FastAPI, our transform", Group.OURS, {16: [500, 500, 500]}),
            *rows("bare processes, our transform", Group.BARE, {1: [150, 150, 150], 16: [500, 500, 500]}),
        ]
    )


def test_ratios_are_those_of_each_round_and_their_median_counts() -> None:
    found = {target.text: target for target in targets(made_up(), {"trivial, FP32": 2.5, "trivial, UINT8": 12.0})}

    def values(start: str) -> tuple[Any, bool | None]:
        [target] = [each for text, each in found.items() if text.startswith(start)]
        return list(target.values.values()), target.is_met

    # UINT8 is the faster one at 16: its value comes first, and counts.
    best = "trivial, 16: throughput to that of the best other server as users write it (FastAPI, Pillow)"
    assert values(best) == ([pytest.approx(1.3), pytest.approx(1.0)], True)  # of 1.56, 1.25, 1.3; of 1.25, 0.71, 1
    assert values("trivial, 16: throughput to that of the tutorial gateway") == ([5.0, 4.0], True)
    assert values("trivial, 16: throughput to that of the bare") == ([0.78, 0.6], True)
    assert values("trivial, 16: throughput to that of the best other server with our transform") == ([0.78, 0.6], False)
    median = "trivial, 1: median latency to that of the hand-written server"
    assert values(median) == ([pytest.approx(2.0), pytest.approx(1.0)], False)
    tail = "trivial, 1: p99 to the median (a bare process, which has only the images' differences: 3.00)"
    assert values(tail) == ([pytest.approx(3.0), pytest.approx(3.0)], False)
    assert values("trivial, 64: throughput to its own best") == ([1.0, 1.0], True)
    assert values("trivial, 64: memory") == ([pytest.approx(115 / 105), pytest.approx(115 / 105)], True)
    assert values("trivial, 64: throughput to that of client preprocessing") == ([], None)
    assert values("resnet50, 16: throughput") == ([], None)
    assert values("start of Triton") == ([12.0], False)


def test_a_round_that_has_no_counterpart_is_left_out() -> None:
    ours = rows("ensemble, FP32, HTTP", Group.ENSEMBLE, {16: [100, 200, 300]})
    theirs = [each for each in rows("FastAPI, Pillow", Group.PILLOW, {16: [100, 1, 100]}) if each.round != 2]
    assert Run([*ours, *theirs]).ratio("trivial", 16, "ensemble, FP32, HTTP", "FastAPI, Pillow", "images_per_s") == 2


def test_the_report_has_every_contender_and_the_csv_every_measurement(tmp_path: Path) -> None:
    run = made_up()
    text = report(run, targets(run, {"trivial, FP32": 2.5}), {"trivial, FP32": 2.5}, "2 CPUs")
    assert "| tutorial gateway | 50.0 (50.0 to 50.0) | 100.0 (50.0 to 150.0) |  | 105, 115 |" in text
    assert "| FastAPI, our transform |  | 32.0 / 96.0 |  |" in text
    assert "Start of Triton to ready: trivial, FP32 2.5 s. Answers that were errors: 0." in text
    write_csv(run.measurements, tmp_path / "all.csv")
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 1 + len(run.measurements)
    draw(run, "2 CPUs", tmp_path / "all.png")
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def test_the_ensemble_is_loaded_and_asked(
    server: TritonServer, generator: Generator, sized_photos: list[Path], tmp_path: Path
) -> None:
    ensemble = EnsembleOverHttp(
        name="ensemble",
        group=Group.ENSEMBLE,
        pids=[server.process.pid],
        port=server.options.http_port,
        encoding=TRITON,
        requests=TRITON.write(sized_photos, tmp_path),
        generator=generator,
    )
    figures = ensemble.load(4, SHORT)
    assert (figures.errors, figures.images_per_s > 0) == (0, True)
    coffee = next(path for path in sized_photos if path.name == "coffee-500.jpg")
    assert ensemble.top_class(coffee) == 967  # espresso


def test_bare_processes_are_loaded_and_asked(lite0: Path, sized_photos: list[Path], tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"class {number}\n" for number in range(1000)))
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "coffee.jpg").write_bytes(next(p for p in sized_photos if p.name == "coffee-500.jpg").read_bytes())
    model = str(lite0 / "efficientnet_lite0" / "1" / "model.onnx")
    with ExitStack() as stack:
        workers = start(stack, "bare", str(folder), model, str(labels), "ours", "1", count=2)
        bare = InProcess(name="bare", group=Group.BARE, servers=[], alone=workers[0], shared=workers, is_threaded=False)
        assert bare.load(16, SHORT).images_per_s > 0
        assert bare.top_class(folder / "coffee.jpg") == 967  # though its normalization is another, as README says


def test_json_carries_the_file_as_base64() -> None:
    assert JSON.request(b"\x00\xff").endswith(b'\r\nContent-Length: 17\r\n\r\n{"image": "AP8="}')
    assert len({encoding.name for encoding in ENCODINGS}) == len(ENCODINGS)


def test_the_other_servers_have_the_projects_versions() -> None:
    def pins(lines: list[str]) -> dict[str, str]:
        pairs = (line.partition("==")[::2] for line in lines if "==" in line)
        return {name.partition("[")[0].lower().replace("_", "-"): version for name, version in pairs}

    ours = pins(read_lines("requirements.txt"))
    theirs = pins([line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")])
    common = ours.keys() & theirs.keys()
    assert {"numpy", "onnxruntime", "pillow", "opencv-python-headless", "tritonclient"} <= common
    assert {name: ours[name] for name in common} == {name: theirs[name] for name in common}


def test_words_that_name_no_contender_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["--only", "Slow"])
    assert "argument --only: expected words of one of ensemble, FP32, gRPC; ensemble" in capsys.readouterr().err
    assert parser().parse_args(["--only", "FastAPI", "--only", "bare"]).only == ["FastAPI", "bare"]
