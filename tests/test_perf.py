"""`python -m benchmarks.perf`: its arithmetic on made figures, and the whole of it through the real server."""

import csv
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.errors import BenchmarkError
from benchmarks.networks import write_trivial
from benchmarks.perf.__main__ import parse
from benchmarks.perf.inputs import write_inputs
from benchmarks.perf.measurement import Load, Measurement, measurement, plan
from benchmarks.perf.plot import spread
from benchmarks.perf.report import latency_table, step_table, write_csv
from benchmarks.perf.server_statistics import StepTimes, step_times
from benchmarks.running import run_export
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer
from tests.conftest import need_library
from tests.running import child, grpc_url, http_url, processes_of

COMMAND = [sys.executable, "-m", "benchmarks.perf"]


def reading(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"model_stats": list(entries)}


def entry(name: str, requests: int, images: int, executions: int, ns: tuple[int, int, int, int], **more: Any) -> Any:
    """As Triton's statistics extension describes it."""
    durations = dict(zip(("queue", "compute_input", "compute_infer", "compute_output"), ns, strict=True))
    return {
        "name": name,
        "version": "1",
        "inference_count": images,
        "execution_count": executions,
        "inference_stats": {
            "success": {"count": requests, "ns": sum(ns)},
            "fail": {"count": 0, "ns": 0},
            **{key: {"count": requests, "ns": value} for key, value in durations.items()},
        },
        **more,
    }


def test_the_difference_of_two_readings_is_the_measurements() -> None:
    before = reading(entry("net", 10, 10, 10, (1_000, 2_000, 3_000, 4_000)), entry("other", 5, 5, 5, (9, 9, 9, 9)))
    after = reading(
        entry("other", 500, 500, 5, (10**12,) * 4), entry("net", 14, 16, 13, (8_001_000, 4_002_000, 40_003_000, 4_000))
    )
    times = step_times(before, after, "net")
    # 4 requests with 6 images in 3 executions; 8, 4, 40 and 0 ms in all
    assert times == StepTimes(
        requests=4,
        mean_batch=2.0,
        queue_ms=2.0,
        compute_input_ms=1.0,
        compute_infer_ms=10.0,
        compute_output_ms=0.0,
    )
    assert (times.compute_ms, times.all_ms) == (11.0, 13.0)


def test_the_numbers_of_grpc_are_strings_and_versions_count_together() -> None:
    def as_grpc(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: as_grpc(each) for key, each in value.items()}
        return str(value) if isinstance(value, int) else value

    before = reading(entry("net", 1, 1, 1, (0, 0, 0, 0)))
    one, two = (entry("net", count, count, 2, (0, 0, count * 3_000_000, 0), version="1") for count in (3, 4))
    times = step_times(reading(*map(as_grpc, before["model_stats"])), reading(as_grpc(one), as_grpc(two)), "net")
    assert (times.requests, times.mean_batch) == (6, 2.0)  # 3 + 4 - 1 in 2 + 2 - 1 executions
    assert times.compute_infer_ms == pytest.approx(21 / 6, rel=1e-12)


@pytest.mark.parametrize("requests", [7, 3], ids=["none", "a restart in between"])
def test_a_model_that_answered_nothing_is_an_error(requests: int) -> None:
    before, after = (reading(entry("net", count, count, count, (0, 0, 0, 0))) for count in (7, requests))
    with pytest.raises(BenchmarkError, match=f"statistics of net: expected requests .* got {requests - 7} more"):
        step_times(before, after, "net")


def step(queue_ms: float, infer_ms: float) -> StepTimes:
    return StepTimes(
        requests=100,
        mean_batch=1.5,
        queue_ms=queue_ms,
        compute_input_ms=0.25,
        compute_infer_ms=infer_ms,
        compute_output_ms=0.75,
    )


def measured(**changed: Any) -> Measurement:
    row = {"Inferences/Second": "160.4", "Avg latency": "50000", "p50 latency": "40000", "p90 latency": "70500"}
    load = Load(**{"model": "pipeline", "url": "http://host:8000", "concurrency": 8, **changed})
    steps = {"preprocess": step(1, 8), "net": step(5, 14), "postprocess": step(0, 2)}
    return measurement(load, {**row, "p99 latency": "123456"}, steps)


def test_the_figures_of_perf_analyzer_are_in_ms_and_the_rest_is_outside_of_the_steps() -> None:
    one = measured()
    assert (one.protocol, one.images_per_s, one.mean_ms) == ("http", 160.4, 50.0)
    assert (one.p50_ms, one.p90_ms, one.p99_ms) == (40.0, 70.5, 123.456)
    assert one.outside_ms == 50 - (1 + 8 + 1) - (5 + 14 + 1) - (2 + 1)  # each step has 0.25 and 0.75 ms besides
    assert one.accounted_ms == one.mean_ms


def test_steps_that_took_longer_than_the_mean_latency_leave_nothing_outside() -> None:
    one = measurement(
        Load(model="net", url="grpc://host:1", concurrency=1),
        {
            **dict.fromkeys(("p50 latency", "p90 latency", "p99 latency", "Avg latency"), "1000"),
            "Inferences/Second": "1",
        },
        {"net": step(1, 2)},
    )
    assert (one.outside_ms, one.accounted_ms) == (0.0, 4.0)


def test_every_load_is_planned_once_and_protocols_take_turns() -> None:
    loads = plan(["pipeline", "net"], ["grpc://a:1", "http://a:2"], [1, 4])
    assert [(load.model, load.concurrency, load.protocol) for load in loads] == [
        ("pipeline", 1, "grpc"),
        ("pipeline", 1, "http"),
        ("pipeline", 4, "grpc"),
        ("pipeline", 4, "http"),
        ("net", 1, "grpc"),
        ("net", 1, "http"),
        ("net", 4, "grpc"),
        ("net", 4, "http"),
    ]


def test_the_tables() -> None:
    alone = measured(model="net", url="grpc://host:8001", concurrency=16)
    assert latency_table([measured(), alone]).splitlines() == [
        "pipeline  concurrency  images/s  p50 ms  p90 ms  p99 ms",
        "HTTP                8     160.4    40.0    70.5   123.5",
        "",
        "net       concurrency  images/s  p50 ms  p90 ms  p99 ms",
        "gRPC               16     160.4    40.0    70.5   123.5",
    ]
    assert step_table([measured(), alone]).splitlines() == [
        "HTTP, concurrency 8  mean batch  queue  input  infer  output  all ms  share",
        "preprocess                  1.5   1.00   0.25   8.00    0.75   10.00    20%",
        "net                         1.5   5.00   0.25  14.00    0.75   20.00    40%",
        "postprocess                 1.5   0.00   0.25   2.00    0.75    3.00     6%",
        "outside the steps                                              17.00    34%",
    ]


def test_the_csv_has_a_row_for_each_step_of_each_measurement(tmp_path: Path) -> None:
    write_csv([measured(), measured(concurrency=16)], tmp_path / "perf.csv")
    rows = read_csv(tmp_path / "perf.csv")
    assert [(row["concurrency"], row["step"]) for row in rows] == [
        (concurrency, name) for concurrency in ("8", "16") for name in ("preprocess", "net", "postprocess")
    ]
    assert rows[1] == {
        "model": "pipeline",
        "protocol": "http",
        "concurrency": "8",
        "images_per_s": "160.4",
        "mean_ms": "50.0",
        "p50_ms": "40.0",
        "p90_ms": "70.5",
        "p99_ms": "123.456",
        "step": "net",
        "requests": "100",
        "mean_batch": "1.5",
        "queue_ms": "5",
        "compute_input_ms": "0.25",
        "compute_infer_ms": "14",
        "compute_output_ms": "0.75",
    }


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_labels_are_moved_apart_and_stay_in_order_below_the_top() -> None:
    assert spread([0.1, 0.5, 0.9], 0.05) == [0.1, 0.5, 0.9]
    assert spread([0.1, 0.12, 0.13], 0.05) == pytest.approx([0.1, 0.15, 0.2])
    assert spread([0.5, 0.98, 0.99, 1.0], 0.05) == pytest.approx([0.5, 0.9, 0.95, 1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "localhost:8001"], "url: expected grpc://HOST:PORT"),
        (["--url", "grpcs://localhost:8001"], "expected grpc:// or http://, without TLS, got grpcs://localhost:8001"),
        (["--url", "grpc://a:1", "--url", "grpc://a:2"], "expected one for each protocol, got grpc://a:1 and grpc://"),
        (["--url", "grpc://a:1", "--model-repository", "x"], "not allowed with argument --url"),
        (["--concurrency", "4,0"], "expected at least 1, got 0"),
        (["--window-s", "nan"], "expected 0.1 to 600, got nan"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(arguments)
    assert message in capsys.readouterr().err


def test_a_url_gets_its_protocols_port_and_concurrencies_rise() -> None:
    options = parse(["--url", "http://a", "--url", "grpc://b", "--concurrency", "8,1,8"])
    assert (options.url, options.concurrency) == (["http://a:8000", "grpc://b:8001"], (1, 8))


def test_a_folder_that_is_none_and_a_server_that_is_none(server: TritonServer, tmp_path: Path) -> None:
    need_library("b64", package="libb64-0d")
    nobody = with_free_ports(ServerOptions(http_port=0, grpc_port=0, metrics_port=0)).grpc_port
    for arguments, message in (
        ([str(tmp_path / "none"), "--url", grpc_url(server)], f"images: expected a folder, got {tmp_path / 'none'}"),
        ([str(tmp_path), "--url", http_url(server)], f"expected some that can be classified in {tmp_path}, got 0"),
        (["--url", f"grpc://127.0.0.1:{nobody}"], f"grpc://127.0.0.1:{nobody}: expected the answer of a Triton"),
    ):
        command = [*COMMAND, *arguments, "--output", str(tmp_path / "output")]
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert outcome.returncode == 1
        assert message in outcome.stderr
        assert "Traceback" not in outcome.stderr


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A repository whose network does next to nothing; no server of it may outlive the test."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    repository = run_export(folder, *write_trivial(folder))
    yield repository
    assert processes_of(repository) == []


def test_the_whole_of_it(tiny: Path, tmp_path: Path, photos: Path) -> None:
    """With a server of its own; what it finds is checked against what must hold of any figures."""
    need_library("b64", package="libb64-0d")
    images = tmp_path / "images"
    images.mkdir()
    for name in ("coffee.png", "rocket.jpg"):
        (images / name).symlink_to(photos / name)
    (images / "broken.jpg").write_bytes(b"no image")
    options = ["--model-repository", str(tiny), "--concurrency", "2", "--window-s", "0.1"]
    outcome = subprocess.run(
        [*COMMAND, str(images), *options, "--output", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert f"images: 2 of the 3 in {images}" in outcome.stdout
    assert "1 refused, for instance" in outcome.stdout
    assert "8 of 8: postprocess over http, concurrency 2 ... " in outcome.stdout
    rows = read_csv(tmp_path / "perf.csv")
    steps = ["preprocess", "trivial", "postprocess"]
    assert [(row["model"], row["protocol"], row["step"]) for row in rows] == [
        *(("pipeline", protocol, step) for protocol in ("grpc", "http") for step in steps),
        *((step, protocol, step) for step in steps for protocol in ("grpc", "http")),
    ]
    for row in rows:
        assert 0 < float(row["p50_ms"]) <= float(row["p90_ms"]) <= float(row["p99_ms"])
        assert 1 <= float(row["mean_batch"]) <= 2  # no more requests than that are in flight
        assert int(row["requests"]) > 0
        assert float(row["compute_infer_ms"]) > 0
        # Little's law: the requests in flight are the throughput times the mean latency. Windows are short here.
        assert 1 < float(row["images_per_s"]) * float(row["mean_ms"]) / 1000 < 4
        assert re.search(rf"^{row['step']} +[\d.]+ ", outcome.stdout, re.MULTILINE)
    with Image.open(tmp_path / "perf.png") as plot:
        assert plot.format == "PNG"
        assert len(plot.convert("RGB").resize((300, 240)).getcolors(1 << 20) or []) > 50  # something is drawn on it


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing_running(server: TritonServer, tmp_path: Path) -> None:
    need_library("b64", package="libb64-0d")
    options = ["--url", grpc_url(server), "--concurrency", "1,2", "--window-s", "0.1", "--output", str(tmp_path)]
    with child([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = ""
        while "2 of 8: pipeline over grpc, concurrency 2 ..." not in said:
            said += (character := process.stdout.read(1))
            assert character, process.communicate()[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert f"1 of 8 measurements were made, those are in {tmp_path / 'perf.csv'}" in errors
    assert "stopped by SIGINT; nothing is left running" in errors
    assert [row["concurrency"] for row in read_csv(tmp_path / "perf.csv")] == ["1"] * 3
    assert not (tmp_path / "perf.png").exists()
    assert command_lines_with(f"127.0.0.1:{server.options.grpc_port}") == []


def command_lines_with(text: str) -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:  # it has ended
            continue
        if b"perf_analyzer" in line and text.encode() in line:
            found.append(line)
    return found


def test_what_is_sent_fits_the_number_of_classes(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"abc")
    inputs = write_inputs([tmp_path / "a.jpg"], ["preprocess", "net", "postprocess"], 7, tmp_path)
    assert list(inputs) == ["pipeline", "preprocess", "net", "postprocess"]
    assert [options["-m"] for options in inputs.values()] == list(inputs)
    assert inputs["net"] == {"-m": "net"}
    assert '"b64": "YWJj"' in Path(inputs["preprocess"]["--input-data"]).read_text()
    assert '"shape": [7]' in Path(inputs["postprocess"]["--input-data"]).read_text()
