"""`video`: the frames of a video file or camera, classified as they come."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ClassificationError
from ..frames import FrameResult
from ..pipeline import PipelineClient
from ..results import ImageResult
from .formats import VIDEO_FORMATS
from .options import EXIT_FAILED, UsageError, connection_options, open_client
from .progress import VideoProgress
from .video_io import Shot, Tape, VideoReader, VideoWriter


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "video", parents=[connection_options()], help="classify a video file or a camera", description=__doc__
    )
    parser.add_argument("source", metavar="FILE|CAMERA", help="a video file, or the number of a camera")
    parser.add_argument("--every", type=_count, default=1, metavar="N", help="classify each Nth frame only")
    parser.add_argument("--top-k", type=int, metavar="K", help="classes a frame (default: the pipeline's, 5)")
    parser.add_argument("--threshold", type=float, metavar="P", help="leave out scores below P, 0 to 1 (default: 0)")
    parser.add_argument(
        "--format",
        choices=VIDEO_FORMATS,
        default="table",
        help="default: %(default)s, a line a frame with its time; in the others clip.mp4#12 is frame 12, from 0",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there (default: standard output)")
    parser.add_argument("--write", type=Path, metavar="OUT.mp4", help="write the video with the classes drawn on")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(open_client(options, max_retries=None))  # None: wait for a restart
        reader = stack.enter_context(VideoReader(options.source))
        tape = stack.enter_context(contextlib.closing(Tape(may_wait=not reader.is_camera)))
        results = _results(client, options, reader, tape)
        writer = stack.enter_context(VideoWriter(options.write, reader.fps)) if options.write else None
        text = VIDEO_FORMATS[options.format](stack.enter_context(_open_text(options)))
        progress = VideoProgress(reader.frame_count, options.every, options.output)
        stack.enter_context(progress)
        failed = 0
        try:
            for shot, result, is_new in _labelled(results, reader, tape, options.every):
                progress.add_frame(result if is_new else None)
                if writer is not None:
                    writer.add(shot, result)
                if is_new:
                    text.add(_name(shot, options), result)
                    failed += result.error is not None
        except ClassificationError as error:
            print(error, file=sys.stderr)
            return EXIT_FAILED
        _check_whole(reader)
        return EXIT_FAILED if failed else 0


def _results(
    client: PipelineClient, options: argparse.Namespace, reader: VideoReader, tape: Tape
) -> Iterator[FrameResult]:
    pictures = _pictures(reader, tape, options.every)
    try:
        return client.stream_frames(
            pictures, options.top_k, options.threshold, when_full="drop_oldest" if reader.is_camera else "wait"
        )
    except ValueError as error:  # over HTTP
        raise UsageError(str(error)) from error


def _pictures(reader: VideoReader, tape: Tape, every: int) -> Iterator[npt.NDArray[np.uint8]]:
    """What is to be classified; all that is read is on the tape before."""
    try:
        for shot in reader:
            picture = shot.picture
            tape.record(shot)
            if shot.index % every == 0 and picture is not None:
                yield picture
    finally:
        tape.close()


def _labelled(
    results: Iterator[FrameResult], reader: VideoReader, tape: Tape, every: int
) -> Iterator[tuple[Shot, ImageResult, bool]]:
    """Every frame that was read with the last result up to it, and whether that is its own.

    The frames up to the next that is classified follow at once; with a camera it is not known which that will be, so
    they follow with it.
    """
    last = ImageResult([])
    for one in results:
        index = one.index * every
        for shot in tape.play(index + 1 if reader.is_camera else index + every):
            is_new = shot.index == index
            last = one.result if is_new else last
            yield shot, last, is_new
    for shot in tape.play(reader.read_count):
        yield shot, last, False


def _name(shot: Shot, options: argparse.Namespace) -> str:
    if options.format != "table":
        return f"{options.source}#{shot.index}"
    milliseconds = round(shot.time_s * 1000)
    return f"{milliseconds // 60_000:02}:{milliseconds // 1000 % 60:02}.{milliseconds % 1000:03}"


def _open_text(options: argparse.Namespace) -> Any:
    if options.output is None:
        return contextlib.nullcontext(sys.stdout)
    errors = VIDEO_FORMATS[options.format].encoding_errors
    try:
        return options.output.open("x", encoding="utf-8", errors=errors, newline="")
    except OSError as error:
        raise UsageError(f"--output: expected a new file, got {options.output}: {error.strerror}") from error


def _check_whole(reader: VideoReader) -> None:
    if reader.read_count == 0:
        raise UsageError(f"{reader.source}: expected a video that OpenCV can read, got one without a readable frame")
    if reader.read_count < (reader.frame_count or 0):
        print(
            f"{reader.source}: expected {reader.frame_count:,} frames, as it announces, got {reader.read_count:,}: "
            "the rest cannot be read",
            file=sys.stderr,
        )


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text}")
    return value
