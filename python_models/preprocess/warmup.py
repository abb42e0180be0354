"""What a model preprocesses once when it is loaded, so that the first caller does not wait for code and memory."""

import numpy as np
import numpy.typing as npt

from .opencv import cv2

HEIGHT, WIDTH = 480, 640  # an ordinary photograph, in small: larger than the crop, so that it is resized


def sample_frame() -> npt.NDArray[np.uint8]:
    """Return a batch of one RGB frame, uint8 (1, HEIGHT, WIDTH, 3): slopes, resized and coded like any other."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    frame: npt.NDArray[np.uint8] = np.stack([rows, columns, rows + columns], axis=-1).astype(np.uint8)
    return frame[np.newaxis]


def sample_file() -> npt.NDArray[np.uint8]:
    """Return a batch of one JPEG file with that frame, uint8 (1, bytes)."""
    _, file = cv2.imencode(".jpg", sample_frame()[0])
    return np.asarray(file, np.uint8).reshape(1, -1)
