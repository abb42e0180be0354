"""Video: stream_frames over one gRPC stream, and the command `video`, against the real server."""

import argparse
import asyncio
import contextlib
import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from tritonclient.grpc.service_pb2 import ModelInferResponse, ModelStreamInferResponse

from client import (
    AsyncPipelineClient,
    ClosedError,
    DeadlineError,
    FrameResult,
    ImageError,
    NotServedError,
    ParameterError,
    PipelineClient,
    ProcessDiedError,
    ServiceError,
    UnavailableError,
)
from client.command_line import video
from client.command_line.video_io import VideoReader
from client.deadline import Deadline, Retries
from client.frames import FRAMES_IN_FLIGHT, FramesInFlight, WhenFull
from server.process import TritonServer
from tests.asking import ask_model
from tests.running import child, grpc_url, http_url, pids_of, server_options

Frame = npt.NDArray[np.uint8]
ROOT = Path(__file__).resolve().parent.parent
SMALL = np.full((30, 40, 3), 90, np.uint8)


@pytest.fixture(scope="module")
def pictures(photos: Path) -> list[Frame]:
    """Photographs of different sizes."""
    return [rgb(cv2.imread(str(photos / name))) for name in ("coffee.png", "rocket.jpg", "chelsea.png", "color.png")]


def rgb(picture: Any) -> Frame:
    return np.ascontiguousarray(picture[:, :, ::-1])


def reference(server: TritonServer, frame: Frame) -> tuple[list[int], list[float]]:
    """Class ids and scores by tritonclient's own call."""
    outputs = ask_model(server, "grpc", "pipeline_frames", "frame", frame[np.newaxis])
    return outputs["class_id"][0].tolist(), outputs["score"][0].tolist()


def assert_as_reference(server: TritonServer, results: list[FrameResult], frames: list[Frame]) -> None:
    assert [one.index for one in results] == list(range(len(frames)))
    expected: dict[int, tuple[list[int], list[float]]] = {}
    for one, frame in zip(results, frames, strict=True):
        assert one.frame is frame
        ids, scores = expected.setdefault(id(frame), reference(server, frame))
        assert one.result.error is None
        assert [each.class_id for each in one.result.classes] == ids
        # The network's sums depend on the batch that Triton makes, in their last bits.
        assert [each.score for each in one.result.classes] == pytest.approx(scores, abs=1e-4)


@contextlib.contextmanager
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 2
    # gRPC's one poller of all asyncio channels ends with the last that has been garbage-collected, not closed.
    while left := [one for one in threading.enumerate() if one not in before and "_poll_wrapper" not in one.name]:
        if time.monotonic() > deadline:
            pytest.fail(f"threads left behind: {left}")
        time.sleep(0.02)


# The stream


def test_frames_of_any_size_in_order(server: TritonServer, pictures: list[Frame]) -> None:
    frames = pictures * 8
    with PipelineClient(grpc_url(server)) as client, no_thread_left():
        assert_as_reference(server, list(client.stream_frames(frames)), frames)


@pytest.mark.parametrize("is_async", [False, True], ids=["iterable", "async iterable"])
def test_asyncio(server: TritonServer, pictures: list[Frame], is_async: bool) -> None:
    frames = pictures * 8

    async def source() -> AsyncIterator[Frame]:
        for frame in frames:
            yield frame

    async def stream() -> list[FrameResult]:
        async with AsyncPipelineClient(grpc_url(server)) as client:
            return [one async for one in client.stream_frames(source() if is_async else frames)]

    assert_as_reference(server, asyncio.run(stream()), frames)


def test_parameters(server: TritonServer, pictures: list[Frame]) -> None:
    with PipelineClient(grpc_url(server)) as client:
        (one,) = client.stream_frames(pictures[:1], top_k=3, threshold=0.5)
        assert [each.label for each in one.result.classes] == ["espresso"]
        for top_k in (0, 1 << 70):  # the server refuses one, the client the other
            with pytest.raises(ParameterError, match="top_k: expected an int"):
                list(client.stream_frames(pictures, top_k=top_k))


def test_a_wrong_frame_has_an_error_and_the_stream_goes_on(server: TritonServer, pictures: list[Frame]) -> None:
    wrong: list[Any] = [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8), "coffee.png"]
    frames = [pictures[0], *wrong, pictures[1][:, ::-1]]
    with PipelineClient(grpc_url(server)) as client:
        results = list(client.stream_frames(frames))
    assert [one.index for one in results] == list(range(6))
    for one in results[1:5]:
        assert isinstance(one.result.error, ImageError)
        assert one.result.error.code == "unsupported"
    assert [one.result.error for one in (results[0], results[5])] == [None, None]


def test_no_frames(server: TritonServer) -> None:
    with PipelineClient(grpc_url(server)) as client:
        assert list(client.stream_frames([])) == []


def test_the_source_waits_for_the_caller(server: TritonServer) -> None:
    taken = delivered = ahead = 0

    def source() -> Iterator[Frame]:
        nonlocal taken, ahead
        for _ in range(40):
            taken += 1
            ahead = max(ahead, taken - delivered)
            yield SMALL

    with PipelineClient(grpc_url(server)) as client:
        for one in client.stream_frames(source()):
            if one.index < 10:
                time.sleep(0.05)  # time in which the source could run ahead
            delivered += 1
    assert delivered == 40
    # One is in the caller's hands.
    assert ahead in range(2, FRAMES_IN_FLIGHT + 2)


def test_a_camera_is_not_kept_waiting(server: TritonServer) -> None:
    has_ended = threading.Event()

    def camera() -> Iterator[Frame]:
        for _ in range(200):
            time.sleep(0.002)
            yield SMALL
        has_ended.set()

    with PipelineClient(grpc_url(server)) as client:
        results = client.stream_frames(camera(), when_full="drop_oldest")
        first = next(results)
        assert has_ended.wait(5)  # although nobody takes a result
        indices = [first.index, *(one.index for one in results)]
    assert indices == sorted(set(indices))
    assert indices[-1] == 199
    assert FRAMES_IN_FLIGHT < len(indices) < 100


def test_a_connection_over_http_is_refused(server: TritonServer) -> None:
    with PipelineClient(http_url(server)) as client, pytest.raises(ValueError, match="only gRPC streams, got http"):
        client.stream_frames([])


def test_a_wrong_policy_is_refused(server: TritonServer) -> None:
    with PipelineClient(grpc_url(server)) as client, pytest.raises(ValueError, match="when_full: expected one of"):
        client.stream_frames([], when_full="drop")  # type: ignore[arg-type]


# Its end


def endless() -> Iterator[Frame]:
    while True:
        yield SMALL


def failing() -> Iterator[Frame]:
    yield SMALL
    yield SMALL
    raise KeyError("the source's own")


def test_an_abandoned_stream_leaves_nothing(server: TritonServer) -> None:
    with PipelineClient(grpc_url(server)) as client:
        with no_thread_left():
            for one in client.stream_frames(endless()):
                if one.index == 5:
                    break
        with no_thread_left():
            results = client.stream_frames(endless(), when_full="drop_oldest")
            next(results)
            results.close()  # type: ignore[attr-defined]
        with no_thread_left(), pytest.raises(ZeroDivisionError):
            _ = [1 // one.index for one in client.stream_frames(endless())]
        with no_thread_left():
            client.stream_frames(endless())


def test_an_exception_of_the_source_comes_after_the_results_before_it(server: TritonServer) -> None:
    with PipelineClient(grpc_url(server)) as client, no_thread_left():
        results = client.stream_frames(failing())
        assert [next(results).index, next(results).index] == [0, 1]
        with pytest.raises(KeyError, match="the source's own"):
            next(results)


def test_a_source_that_gives_no_more_does_not_hold_the_end(server: TritonServer) -> None:
    is_over = threading.Event()

    def stuck() -> Iterator[Frame]:
        yield SMALL
        is_over.wait(60)

    try:
        with PipelineClient(grpc_url(server)) as client:
            assert next(iter(client.stream_frames(stuck()))).index == 0  # not held back until the next frame
            started = time.monotonic()
        assert time.monotonic() - started < 1
    finally:
        is_over.set()


def test_a_client_that_is_closed_meanwhile(server: TritonServer) -> None:
    client = PipelineClient(grpc_url(server))
    results = client.stream_frames(endless())
    next(results)
    client.close()
    with no_thread_left(), pytest.raises(ClosedError):
        list(results)


async def assert_no_task_left() -> None:
    async with asyncio.timeout(2):  # gRPC's own end a moment later
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


def test_asyncio_leaves_nothing(server: TritonServer) -> None:
    async def consume(client: AsyncPipelineClient, source: Callable[[], Iterable[Frame]]) -> None:
        async for _ in client.stream_frames(source()):
            pass

    async def abandon() -> None:
        async with AsyncPipelineClient(grpc_url(server)) as client:
            async with contextlib.aclosing(client.stream_frames(endless())) as results:  # type: ignore[type-var]
                async for one in results:
                    if one.index == 5:
                        break
            await assert_no_task_left()
            with pytest.raises(KeyError):
                await consume(client, failing)
            await assert_no_task_left()
            for milliseconds in range(0, 100, 2):  # in any moment: one in thirty was lost by asyncio.wait_for
                task = asyncio.create_task(consume(client, endless))
                await asyncio.sleep(milliseconds / 1000)
                task.cancel()
                await asyncio.wait([task], timeout=2)
                assert task.cancelled()
            await assert_no_task_left()
            results = client.stream_frames(endless())
            await anext(results)
        with pytest.raises(ClosedError):
            _ = [one async for one in results]

    asyncio.run(abandon())


# Failures


@pytest.fixture
def own_server(lite0: Path) -> Iterator[TritonServer]:
    """A server that may be ended; it is started within the test's own file of logs."""
    with TritonServer(server_options(lite0)) as server:
        server.wait_until_ready()
        yield server


def replace(server: TritonServer, stack: contextlib.ExitStack) -> None:
    """Kill a server, and start another on its ports; the thread must live on, as the server ends with it."""
    server.stop(signal.SIGKILL)
    stack.enter_context(TritonServer(server.options)).wait_until_ready()


def test_a_server_that_is_killed_and_started_again(own_server: TritonServer, pictures: list[Frame]) -> None:
    results = []
    with (
        ThreadPoolExecutor(1) as thread,
        contextlib.ExitStack() as stack,
        PipelineClient(grpc_url(own_server), timeout_s=50, max_retries=None) as client,
    ):
        for one in client.stream_frames(pictures * 15):
            results.append(one)
            if one.index == 20:
                restart = thread.submit(replace, own_server, stack)
        restart.result()
    assert_whole(results, 60)


def test_asyncio_and_a_server_that_is_killed_and_started_again(own_server: TritonServer, pictures: list[Frame]) -> None:
    async def stream(stack: contextlib.ExitStack, thread: ThreadPoolExecutor) -> list[FrameResult]:
        results = []
        async with AsyncPipelineClient(grpc_url(own_server), timeout_s=50, max_retries=None) as client:
            async for one in client.stream_frames(pictures * 15):
                results.append(one)
                if one.index == 20:
                    restart = thread.submit(replace, own_server, stack)
        restart.result()
        return results

    with ThreadPoolExecutor(1) as thread, contextlib.ExitStack() as stack:
        assert_whole(asyncio.run(stream(stack, thread)), 60)


def assert_whole(results: list[FrameResult], count: int) -> None:
    """Of the four photographs in turn, each has one result, and always the same."""
    assert [(one.index, one.result.error) for one in results] == [(index, None) for index in range(count)]
    for one in results:
        assert one.result.classes[0].class_id == results[one.index % 4].result.classes[0].class_id


def test_a_server_that_does_not_come_back(own_server: TritonServer) -> None:
    with PipelineClient(grpc_url(own_server), max_retries=2) as client, no_thread_left():
        results = client.stream_frames(endless())
        next(results)
        own_server.stop(signal.SIGKILL)
        with pytest.raises(ServiceError, match="expected the answer of a Triton server") as caught:
            list(results)
    assert caught.value.code == "unavailable"


def test_a_python_process_that_dies_behind_the_server(own_server: TritonServer, pictures: list[Frame]) -> None:
    with PipelineClient(grpc_url(own_server), max_retries=None) as client:
        results = client.stream_frames(pictures * 5)
        indices = [next(results).index]
        mine = [pid for pid in pids_of(own_server, "preprocess_frames") if os.getpgid(pid) == own_server.process.pid]
        os.kill(mine[0], signal.SIGKILL)  # one of two
        for one in results:
            assert one.result.error is None
            indices.append(one.index)
    assert indices == list(range(20))


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_a_server_that_hangs(own_server: TritonServer, is_async: bool) -> None:
    def stream() -> None:
        with PipelineClient(grpc_url(own_server), timeout_s=1.5) as client:
            for one in client.stream_frames(endless()):
                if one.index == 5:
                    os.kill(own_server.process.pid, signal.SIGSTOP)

    async def stream_async() -> None:
        async with AsyncPipelineClient(grpc_url(own_server), timeout_s=1.5) as client:
            async for one in client.stream_frames(endless()):
                if one.index == 5:
                    os.kill(own_server.process.pid, signal.SIGSTOP)

    started = time.monotonic()
    try:
        with no_thread_left(), pytest.raises(DeadlineError, match=r"within 1\.5 s"):
            asyncio.run(stream_async()) if is_async else stream()
        assert 1.5 < time.monotonic() - started < 6
    finally:
        os.kill(own_server.process.pid, signal.SIGCONT)
    with PipelineClient(grpc_url(own_server)) as client:  # which is not busy with what was given up
        assert client.classify(SMALL).error is None


def test_a_server_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with PipelineClient(url, timeout_s=1) as client, no_thread_left(), pytest.raises(ServiceError):
            list(client.stream_frames(endless()))
        assert time.monotonic() - started < 4


# The bookkeeping, without a server


def in_flight(limit: int, when_full: WhenFull = "wait") -> FramesInFlight:
    return FramesInFlight(limit, when_full, {}, lambda: Retries(5, Deadline(10, "grpc://nowhere")))


def answer(index: str, error: str = "") -> Any:
    return ModelStreamInferResponse(error_message=error, infer_response=ModelInferResponse(id=index))


def test_the_oldest_gives_way() -> None:
    frames = in_flight(2, "drop_oldest")
    for _ in range(5):
        assert frames.has_room
        frames.take(SMALL)
    assert [frames.next_message().id for _ in range(2)] == ["3", "4"]


def test_what_was_sent_is_never_dropped_and_the_newest_always_kept() -> None:
    frames = in_flight(2, "drop_oldest")
    for _ in range(2):
        frames.take(SMALL)
    assert [frames.next_message().id for _ in range(2)] == ["0", "1"]
    for _ in range(4):
        frames.take(SMALL)  # 2 to 5, of which one may wait
    assert not frames.can_send
    frames.break_off(UnavailableError("gone"))
    frames.take(SMALL)
    assert [frames.next_message().id for _ in range(2)] == ["0", "1"]
    frames.answer(answer("0", "preprocess: too_many_pixels: image 0: expected fewer"))
    assert not frames.can_send
    delivered = frames.deliver()
    assert delivered is not None
    assert isinstance(delivered.result.error, ImageError)
    assert frames.next_message().id == "6"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("in ensemble 'pipeline_frames', postprocess: invalid_parameter: top_k: expected less", ParameterError),
        ("Request for unknown model: 'pipeline_frames' is not found", NotServedError),
        ("Stub process 'preprocess_frames_0_0' is not healthy.", ProcessDiedError),
    ],
)
def test_an_error_that_is_no_single_frames(text: str, kind: type[Exception]) -> None:
    frames = in_flight(2)
    frames.take(SMALL)
    frames.next_message()
    with pytest.raises(kind):
        frames.answer(answer("0", text))
    assert frames.deliver() is None


@pytest.mark.parametrize("index", ["1", "", "-1", "<id_unknown>", "\N{SUPERSCRIPT TWO}"])
def test_an_answer_to_nothing_that_was_asked(index: str) -> None:
    frames = in_flight(2)
    frames.take(SMALL)
    frames.next_message()
    with pytest.raises(ServiceError, match=r"expected the id of a frame in flight, one of \[0\], got"):
        frames.answer(answer(index, "something"))


def test_retries_begin_anew_with_each_answer() -> None:
    frames = in_flight(2)
    frames.take(SMALL)
    error = UnavailableError("gone")
    for _ in range(3):  # each time with five retries, as there is progress between
        frames.take(SMALL)
        index = frames.next_message().id
        for _ in range(5):
            frames.break_off(error)
            assert frames.next_message().id == index
        frames.answer(answer(index, "preprocess: too_small: expected more"))
        assert frames.deliver() is not None
    frames.next_message()
    for _ in range(5):
        frames.break_off(error)
    with pytest.raises(UnavailableError):
        frames.break_off(error)


# The command


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, pictures: list[Frame]) -> Path:
    """40 frames, 10 of each photograph, 25 a second."""
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    return write_clip(path, [cv2.resize(one, (640, 480)) for one in pictures for _ in range(10)])  # type: ignore[misc]


def write_clip(path: Path, frames: list[Frame], codec: str = "mp4v") -> Path:
    height, width = frames[0].shape[:2]
    file = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*codec), 25, (width, height))  # type: ignore[attr-defined]
    for frame in frames:
        file.write(rgb(frame))
    file.release()
    return path


def read_clip(path: Path) -> list[Frame]:
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (read := capture.read())[0]:
        frames.append(rgb(read[1]))
    return frames


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "client", "video", *map(str, arguments)]


def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_each_frame_has_its_line(server: TritonServer, clip: Path) -> None:
    outcome = run(clip, "--url", grpc_url(server), "--top-k", "2")
    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert len(lines) == 40
    assert re.fullmatch(r"00:00\.000  \d\d\.\d% espresso  [ \d]\d\.\d% .+", lines[0])
    assert [line[:9] for line in lines[24:27]] == ["00:00.960", "00:01.000", "00:01.040"]
    assert "40 frames, 40 classified, 0 dropped, 0 failed, " in outcome.stderr


def test_json_lines_are_as_the_reference(server: TritonServer, clip: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    outcome = run(clip, "--url", grpc_url(server), "--every", "7", "--format", "jsonl", "--output", output)
    assert (outcome.returncode, outcome.stdout) == (0, ""), outcome.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    frames = read_clip(clip)
    assert [row["image"] for row in rows] == [f"{clip}#{index}" for index in range(0, 40, 7)]
    for row, frame in zip(rows, frames[::7], strict=True):
        ids, scores = reference(server, frame)
        assert [one["class_id"] for one in row["classes"]] == ids
        assert [one["score"] for one in row["classes"]] == pytest.approx(scores, abs=1e-4)
    assert "40 frames, 6 classified, 0 dropped" in outcome.stderr


def test_csv(server: TritonServer, clip: Path) -> None:
    outcome = run(clip, "--url", grpc_url(server), "--every", "39", "--format", "csv", "--top-k", "1")
    rows = list(csv.DictReader(outcome.stdout.splitlines()))
    assert [row["image"] for row in rows] == [f"{clip}#0", f"{clip}#39"]
    assert rows[0]["label"] == "espresso"


@pytest.mark.parametrize("every", [1, 7, 30])  # with 30, more frames lie between than are kept
def test_the_video_with_its_classes(server: TritonServer, clip: Path, tmp_path: Path, every: int) -> None:
    copy = tmp_path / "copy.mp4"
    outcome = run(clip, "--url", grpc_url(server), "--every", str(every), "--write", copy)
    assert outcome.returncode == 0, outcome.stderr
    before, after = read_clip(clip), read_clip(copy)
    assert len(after) == 40
    assert after[0].shape == (480, 640, 3)
    for one, other in zip(before, after, strict=True):  # the upper part as it was, in that order; the plate below
        assert np.abs(one[:150].astype(int) - other[:150]).mean() < 6
        assert np.abs(one[350:].astype(int) - other[350:]).mean() > 12


@pytest.mark.parametrize(("size", "written"), [((64, 100), (256, 400)), ((241, 321), (242, 322))], ids=str)
def test_the_size_of_a_written_video(
    server: TritonServer, tmp_path: Path, size: tuple[int, int], written: tuple[int, int]
) -> None:
    frames = [np.full((*size, 3), level, np.uint8) for level in range(0, 250, 25)]
    path = tmp_path / "odd.gif"  # OpenCV writes no odd sizes
    first, *others = map(Image.fromarray, frames)
    first.save(path, save_all=True, append_images=others, duration=40)
    outcome = run(path, "--url", grpc_url(server), "--threshold", "0.2", "--write", tmp_path / "copy.mp4")
    assert outcome.returncode == 0, outcome.stderr
    assert [one.shape for one in read_clip(tmp_path / "copy.mp4")] == [(*written, 3)] * 10


def test_ctrl_c_leaves_a_video_that_can_be_played(server: TritonServer, tmp_path: Path) -> None:
    path = write_clip(tmp_path / "long.mp4", [np.full((240, 320, 3), 90, np.uint8)] * 5000)
    copy = tmp_path / "copy.mp4"
    arguments = command(path, "--url", grpc_url(server), "--write", copy)
    with child(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(20):
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in errors
    counts = re.search(r"([\d,]+) frames, [\d,]+ classified, 0 dropped, 0 failed", errors)
    assert counts is not None, errors
    frames, lines = len(read_clip(copy)), 20 + len(output.splitlines())
    assert lines <= frames <= lines + 1  # the text comes last
    assert frames <= int(counts[1].replace(",", "")) < 5000


def test_a_file_that_ends_too_early(server: TritonServer, clip: Path, tmp_path: Path) -> None:
    whole = write_clip(tmp_path / "whole.avi", read_clip(clip), "MJPG").read_bytes()
    cut = tmp_path / "cut.avi"
    cut.write_bytes(whole[: len(whole) // 2])
    outcome = run(cut, "--url", grpc_url(server), "--top-k", "1")
    assert outcome.returncode == 0
    assert f"{cut}: expected 40 frames, as it announces, got " in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.mp4"], "missing.mp4: expected a video file, or the number of a camera, got no such file"),
        (["Makefile"], "Makefile: expected a video that OpenCV can read, got none"),
        (["999"], "999: expected a camera of that number, got none"),
        (["99999999999"], "99999999999: expected a video file, or the number of a camera, got no such file"),
        (["CLIP", "--url", "http://127.0.0.1:1"], "stream_frames: expected a client with a grpc URL"),
        (["CLIP", "--write", "copy.avi"], "--write: expected a new file *.mp4 in a folder that exists, got copy.avi"),
        (["CLIP", "--write", "no/folder/copy.mp4"], "--write: expected a new file *.mp4"),
        (["CLIP", "--output", "README.md"], "--output: expected a new file, got README.md: File exists"),
        (["CLIP", "--every", "0"], "argument --every: expected a whole number above 0, got 0"),
    ],
    ids=str,
)
def test_wrong_usage(clip: Path, arguments: list[str], message: str) -> None:
    outcome = run(*(str(clip) if word == "CLIP" else word for word in arguments))
    assert outcome.returncode == 2
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_no_server(clip: Path, tmp_path: Path) -> None:
    outcome = run(clip, "--url", "grpc://127.0.0.1:1", "--timeout-s", "2", "--write", tmp_path / "copy.mp4")
    assert outcome.returncode == 1
    assert "Connection refused" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_without_opencv(clip: Path) -> None:
    code = "import sys; sys.modules['cv2'] = None; from client.__main__ import main; sys.exit(main(sys.argv[1:]))"
    outcome = subprocess.run(
        [sys.executable, "-c", code, "video", str(clip)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert outcome.returncode == 2
    assert "expected the package OpenCV: pip install 'triton-classify[cli]'" in outcome.stderr


class FileAsCamera(VideoReader):
    """There is no camera here: a file that is read as fast as it can be, and not kept waiting."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.is_camera, self.frame_count = True, None


@pytest.mark.parametrize("every", [1, 3])
def test_a_camera(
    server: TritonServer,
    clip: Path,
    every: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(video, "VideoReader", FileAsCamera)
    parser = argparse.ArgumentParser()
    video.add_command(parser.add_subparsers())
    copy = tmp_path / "copy.mp4"
    arguments = ["video", str(clip), "--url", grpc_url(server), "--format", "jsonl", "--write", str(copy)]
    options = parser.parse_args([*arguments, "--every", str(every)])
    assert options.run(options) == 0
    printed = capsys.readouterr()
    indices = [int(json.loads(line)["image"].split("#")[1]) for line in printed.out.splitlines()]
    assert indices == sorted(set(indices))
    assert indices[-1] == 39
    assert {index % every for index in indices} == {0}
    dropped = len(range(0, 40, every)) - len(indices)
    assert f"40 frames, {len(indices)} classified, {dropped} dropped, 0 failed" in printed.err
    assert len(read_clip(copy)) == 40  # those whose picture is lost repeat the one before
