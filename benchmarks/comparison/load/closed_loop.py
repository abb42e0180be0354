"""Threads that classify again and again, for what is no HTTP server."""

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from .jobs import serve
from .recorder import Duration, Recorder


def serve_classifier(classify: Callable[[bytes], dict[str, Any]], folder: str) -> None:
    """Do jobs with the image files of `folder`: {"classify": path} for one answer, or a load, as `closed_loop`."""
    files = [path.read_bytes() for path in sorted(Path(folder).iterdir())]

    def run(job: dict[str, Any]) -> dict[str, Any]:
        if "classify" in job:
            return classify(Path(job["classify"]).read_bytes())
        return closed_loop(lambda number: classify(files[number % len(files)]), job)

    serve(run)


def closed_loop(call: Callable[[int], object], job: dict[str, Any]) -> dict[str, Any]:
    """Keep `concurrency` calls running, given 0, 1, 2, ...; returns a LoadResult. The first failure ends the load."""
    recorder = Recorder(job["concurrency"], Duration(warm_up_s=job["warm_up_s"], window_s=job["window_s"]))
    numbers = count()
    failures: list[Exception] = []

    def work() -> None:
        try:
            while not recorder.is_over and not failures:
                started = time.perf_counter()
                call(next(numbers))
                recorder.answered(started, is_right=True)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(job["concurrency"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return recorder.result.as_json()
