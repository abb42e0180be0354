"""The steps' own metrics: exact counts on Triton's metrics page, whatever happens to the processes that count."""

import os
import random
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.utils

from python_models.preprocess.errors import CODES
from python_models.preprocess.metrics import SECONDS, Counter, Histogram
from server.process import TritonServer
from tests.asking import ask, ask_model, connect
from tests.running import pids_of, started

HANDED_OVER_WITHIN_S = 20  # after a second, and more on a busy machine

Page = dict[str, float]  # series -> value


# Adding up, without Triton


def test_what_threads_add_is_taken_once() -> None:
    counter = Counter("images", "", "outcome", ["ok", "bad"])
    taken: list[dict[str, float]] = []
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            taken.append(counter.take())

    taker = threading.Thread(target=take)
    taker.start()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: counter.add(1, "bad" if number % 3 == 0 else "ok"), range(6000)))
    done.set()
    taker.join()
    taken.append(counter.take())
    assert sum(one["ok"] for one in taken) == 4000
    assert sum(one["bad"] for one in taken) == 2000


def test_a_histogram_is_prometheus_own() -> None:
    """Cumulative, bounds included; as prometheus.io/docs/concepts/metric_types has it."""
    values = [*SECONDS, 0, 0.003, 1e9, *random.Random(0).choices([0.0004, 0.7, 5.0], k=50)]
    histogram = Histogram("decode_seconds", "", SECONDS)
    for value in values:
        histogram.observe(value)
    count, total, bucket = (counter.take() for counter in histogram.counters)
    assert count == {"": len(values)}
    assert total[""] == pytest.approx(sum(values))
    expected = {f"{bound:g}": sum(value <= bound for value in values) for bound in SECONDS}
    assert bucket == {**expected, "+Inf": len(values)}
    assert next(iter(bucket)) == "+Inf"  # handed over first: no scrape finds more below a bound than below a higher one


def test_what_fails_is_not_timed() -> None:
    histogram = Histogram("decode_seconds", "", SECONDS)
    with pytest.raises(ValueError, match="no image"), histogram.timed():
        raise ValueError("no image")
    with histogram.timed():
        time.sleep(0.01)
    count, total, _ = (counter.take() for counter in histogram.counters)
    assert count == {"": 1}
    assert 0.01 <= total[""] < 10


# Through the real server


def page(server: TritonServer) -> Page:
    """Our series of the metrics page, labels sorted by name; none before Triton opens it, which it does last."""
    url = f"http://127.0.0.1:{server.options.metrics_port}/metrics"
    found = {}
    try:
        text = urllib.request.urlopen(url, timeout=10).read().decode()
    except urllib.error.URLError:
        return {}
    for name, labels, value in re.findall(r"^(triton_classify_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        found[f"{name}{{{','.join(sorted(labels.split(',')))}}}"] = float(value)
    return found


def images(model: str, outcome: str) -> str:
    return f'triton_classify_images_total{{model="{model}",outcome="{outcome}"}}'


def wait_for(server: TritonServer, is_there: Callable[[Page], bool]) -> Page:
    deadline = time.monotonic() + HANDED_OVER_WITHIN_S
    while not is_there(now := page(server)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def reload(server: TritonServer, model: str) -> None:
    """Load the model anew, as after a change of its code."""
    path = server.options.repository / model / "1" / "model.py"
    os.utime(path, (time.time(), path.stat().st_mtime + 10))
    client = connect(server, "grpc")
    client.load_model(model)
    client.close()


def test_known_traffic_is_counted_exactly(own_repository: Path, photos: Path) -> None:
    coffee = (photos / "coffee.png").read_bytes()
    with started(own_repository) as server:
        before = wait_for(server, bool)
        for model in ("preprocess", "preprocess_frames"):  # 0 from the start, and the warm-up is no traffic
            assert {before[images(model, outcome)] for outcome in ("ok", "internal", *CODES)} == {0}
        for _ in range(3):
            ask(server, "grpc", [coffee])
        ask(server, "http", [coffee, b"no image", b""])
        with pytest.raises(tritonclient.utils.InferenceServerException, match="not_an_image"):
            ask(server, "grpc", [b"no image"])
        with pytest.raises(tritonclient.utils.InferenceServerException, match="invalid_parameter"):
            ask(server, "grpc", [coffee], top_k=0)
        frame = np.zeros((1, 40, 50, 3), np.uint8)
        ask_model(server, "grpc", "pipeline_frames", "frame", frame)
        after = wait_for(server, lambda now: sum(now[one] for one in now if "images_total" in one) == 15)
    ours = {series: value for series, value in after.items() if "_images_total" in series and value}
    assert ours == {
        images("preprocess", "ok"): 5,
        images("preprocess", "not_an_image"): 2,
        images("preprocess", "empty"): 1,
        images("preprocess_frames", "ok"): 1,
        images("postprocess", "ok"): 5,
        images("postprocess", "invalid_parameter"): 1,
    }
    assert after['triton_classify_image_bytes_total{model="preprocess"}'] == 7 * len(coffee) + len(b"no image")
    assert after['triton_classify_image_bytes_total{model="preprocess_frames"}'] == frame.nbytes
    counts = {series.split("_", 2)[2]: after[series] for series in after if "_count{" in series}
    assert counts == {
        'batch_images_count{model="preprocess"}': 6,  # of the requests, one after the other
        'batch_images_count{model="preprocess_frames"}': 1,
        'batch_images_count{model="postprocess"}': 6,
        'decode_seconds_count{model="preprocess"}': 5,
        'decode_seconds_count{model="preprocess_frames"}': 0,
        'resize_seconds_count{model="preprocess"}': 5,
        'resize_seconds_count{model="preprocess_frames"}': 1,
    }
    assert after['triton_classify_batch_images_sum{model="preprocess"}'] == 8
    assert after['triton_classify_batch_images_bucket{le="2",model="preprocess"}'] == 5
    assert after['triton_classify_batch_images_bucket{le="4",model="preprocess"}'] == 6
    assert 0 < after['triton_classify_decode_seconds_sum{model="preprocess"}'] < 60


def test_counts_go_on_over_reloads_and_dead_processes(own_repository: Path, photos: Path) -> None:
    """Triton shares each number between the processes; without care a reload is a segmentation fault of the server."""
    coffee, asked = (photos / "coffee.png").read_bytes(), 0

    def counted(server: TritonServer, model: str) -> float:
        return wait_for(server, lambda now: now[images(model, "ok")] == asked)[images(model, "ok")]

    with started(own_repository) as server:
        for model in ("preprocess", "postprocess"):
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda _: ask(server, "grpc", [coffee]), range(8)))
            asked += 8
            assert (counted(server, "preprocess"), counted(server, "postprocess")) == (asked, asked)
            reload(server, model)
            time.sleep(0.5)  # of the old load's end
        os.kill(pids_of(server, "preprocess")[0], signal.SIGKILL)
        reload(server, "preprocess")
        time.sleep(0.5)
        for _ in range(6):
            ask(server, "grpc", [coffee])
        asked += 6
        assert (counted(server, "preprocess"), counted(server, "postprocess")) == (asked, asked)
        assert server.process.poll() is None
    log = server.options.log
    assert log is not None
    assert "metrics: expected" not in log.read_text("utf-8", "replace")


def test_images_are_classified_where_the_metrics_are_off(own_repository: Path, photos: Path) -> None:
    with started(own_repository, "--allow-metrics=false") as server:
        answer = ask(server, "http", [(photos / "coffee.png").read_bytes()])
    assert answer["label"][0, 0] == b"espresso"
