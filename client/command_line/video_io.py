"""Video files and cameras by OpenCV: read, kept until their result is there, written."""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..results import ImageResult
from .options import UsageError

FRAMES_KEPT = 16
USUAL_FPS = 30.0  # where a file or camera does not tell its own
MIN_SIDE = 240  # pixels: below, annotate.py would draw beside the picture, in varying size


def import_cv2() -> Any:
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # nothing: what is wrong with a file we say ourselves
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    try:
        import cv2
    except ImportError as error:
        raise UsageError("video: expected the package OpenCV: pip install 'triton-classify[cli]'") from error
    return cv2


@dataclass
class Shot:
    """A frame of a video: its number from 0, its time, uint8 (H, W, 3) in RGB; None where it could not be kept."""

    index: int
    time_s: float
    picture: npt.NDArray[np.uint8] | None


class VideoReader:
    """A video file, or a camera, where `source` is a number of up to 3 digits; UsageError where it cannot be opened.

    `frame_count` is what the file announces, None where it does not, as for a camera.
    """

    def __init__(self, source: str) -> None:
        self._cv2 = import_cv2()
        self.is_camera = source.isdecimal() and len(source) <= 3
        if not self.is_camera and not Path(source).is_file():
            raise UsageError(f"{source}: expected a video file, or the number of a camera, got no such file")
        self._capture = self._cv2.VideoCapture(int(source) if self.is_camera else source)
        self._lock = threading.Lock()  # so that nothing is read while it is closed
        if not self._capture.isOpened():
            what = "a camera of that number" if self.is_camera else "a video that OpenCV can read"
            raise UsageError(f"{source}: expected {what}, got none")
        self._started = time.monotonic()
        self.source, self.read_count = source, 0
        self.fps = self._property(self._cv2.CAP_PROP_FPS) or USUAL_FPS
        self.frame_count = None if self.is_camera else int(self._property(self._cv2.CAP_PROP_FRAME_COUNT)) or None

    def _property(self, number: int) -> float:
        """0 where it is not known."""
        value = self._capture.get(number)
        return value if 0 < value < 1e9 else 0.0

    def __iter__(self) -> Iterator[Shot]:
        while (shot := self._read()) is not None:
            yield shot

    def _read(self) -> Shot | None:
        with self._lock:
            is_read, picture = self._capture.read()
            if not is_read:
                return None
            at_s = self._capture.get(self._cv2.CAP_PROP_POS_MSEC) / 1000
        if self.is_camera:
            at_s = time.monotonic() - self._started
        self.read_count += 1
        return Shot(self.read_count - 1, at_s, self._cv2.cvtColor(picture, self._cv2.COLOR_BGR2RGB))

    def __enter__(self) -> "VideoReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._capture.release()


class Tape:
    """The frames of a video between the thread that reads them and the one that has their results.

    At most FRAMES_KEPT pictures: `record` waits for room, or, where it `may_wait` not, the oldest picture is let go.
    """

    def __init__(self, may_wait: bool) -> None:
        self._may_wait = may_wait
        self._shots: deque[Shot] = deque()
        self._played = 0
        self._changed = threading.Condition()
        self._has_ended = False

    def record(self, shot: Shot) -> None:
        with self._changed:
            if self._may_wait:
                self._changed.wait_for(lambda: len(self._shots) < FRAMES_KEPT or self._has_ended)
            elif len(self._shots) >= FRAMES_KEPT:
                self._shots[-FRAMES_KEPT].picture = None
            self._shots.append(shot)
            self._changed.notify_all()

    def close(self) -> None:
        """There are no more frames, or none is wanted."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def play(self, before: int) -> Iterator[Shot]:
        """The frames numbered below `before` that have not been played yet, waiting for those that are to come."""
        while (shot := self._next(before)) is not None:
            yield shot

    def _next(self, before: int) -> Shot | None:
        with self._changed:
            self._changed.wait_for(lambda: self._played >= before or self._shots or self._has_ended)
            if self._played >= before or not self._shots:
                return None
            self._played += 1
            self._changed.notify_all()
            return self._shots.popleft()


class VideoWriter:
    """Writes an MP4 file in which each frame bears its result; all frames get the first one's size.

    A frame with a side below 240 pixels is enlarged by a whole factor. Raises UsageError where it cannot be written.
    """

    def __init__(self, path: Path, fps: float) -> None:
        if path.suffix.lower() != ".mp4" or path.exists() or not path.parent.is_dir():
            raise UsageError(f"--write: expected a new file *.mp4 in a folder that exists, got {path}")
        try:
            from .annotate import draw_on_frame
        except ImportError as error:
            raise UsageError("--write: expected the package Pillow: pip install 'triton-classify[cli]'") from error
        self._draw, self._cv2, self._path, self._fps = draw_on_frame, import_cv2(), path, fps
        self._file: Any = None
        self._last: npt.NDArray[np.uint8] | None = None
        self._owed = 0  # frames

    def add(self, shot: Shot, result: ImageResult) -> None:
        """The next frame; where its picture is lost, the one before is seen in its stead, at the start the first."""
        self._owed += 1
        if shot.picture is not None:
            self._last = self._fitted(shot.picture)
        if self._last is not None:
            drawn = self._cv2.cvtColor(self._draw(self._last, result), self._cv2.COLOR_RGB2BGR)
            for _ in range(self._owed):
                self._file.write(drawn)
            self._owed = 0

    def _fitted(self, picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        if self._file is None:
            height, width = picture.shape[:2]
            factor = ceil(MIN_SIDE / min(height, width))
            self._size = tuple(side * factor + side * factor % 2 for side in (width, height))  # video wants even sides
            self._file = self._open()
        if picture.shape[1::-1] == self._size:
            return picture
        return self._cv2.resize(picture, self._size, interpolation=self._cv2.INTER_NEAREST)  # type: ignore[no-any-return]

    def _open(self) -> Any:
        file = self._cv2.VideoWriter(str(self._path), self._cv2.VideoWriter_fourcc(*"mp4v"), self._fps, self._size)
        if not file.isOpened():
            raise UsageError(f"--write: expected a file that can be written, got {self._path}")
        return file

    def __enter__(self) -> "VideoWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.release()
