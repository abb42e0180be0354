"""What may be classified, and how images are gathered into requests."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import ImageError

Image: TypeAlias = bytes | bytearray | memoryview | str | os.PathLike[str] | npt.NDArray[np.uint8]
"""The bytes of an image file; the path of one; or a decoded picture, uint8 (H, W, 3) in R, G, B order."""

BATCH_SIZE = 8  # on two cores 1.15 times as fast as one by one; with 16 no faster, and a failed request costs more
WINDOW = 8 * BATCH_SIZE  # images among which those of like length are gathered
MAX_LENGTH_RATIO = 2  # of the longest file in a batch to the shortest: more would send more zeros than file
MAX_REQUEST_BYTES = 32 << 20
# Where a file of these is cut short, the zeros behind it cannot be taken for pixels. Other formats travel alone.
_MAY_BE_PADDED = (b"\xff\xd8", b"\x89PNG", b"GIF8", b"RIFF")


@dataclass(frozen=True)
class Item:
    """One image, read: the ensemble and tensor it goes to, its shape there, and its bytes."""

    model: str
    tensor: str
    shape: tuple[int, ...]
    data: bytes

    def fits(self, other: "Item") -> bool:
        """Whether both may be in one batch; `other` is at least as long."""
        if self.tensor == "frame":
            return self.shape == other.shape
        return (
            other.tensor == "raw_image"
            and len(other.data) <= MAX_LENGTH_RATIO * len(self.data)
            and all(item.data.startswith(_MAY_BE_PADDED) for item in (self, other))
        )


def is_one_image(images: Any) -> bool:
    """Tell one image from several, as `classify` does."""
    return isinstance(images, bytes | bytearray | memoryview | str | os.PathLike | np.ndarray)


def expect_list(images: Any) -> None:
    """Raise TypeError for what `classify` takes neither for one image nor for several."""
    if not isinstance(images, Sequence):
        got = type(images).__name__
        raise TypeError(f"images: expected one image or a list of them, got {got}; classify_each takes any iterable")


def expect_several(images: Any) -> None:
    """Raise TypeError for one image where several are expected: a path is an iterable too, of its letters."""
    if isinstance(images, np.ndarray) and images.ndim == 4:
        return
    if is_one_image(images):
        raise TypeError(f"images: expected an iterable of images, got one, {type(images).__name__}; classify takes it")


def read_item(image: Image) -> Item:
    """Read a file where a path is given; ImageError where it cannot be read, or a picture's type or shape is wrong.

    What may change is copied: a camera's frames often come in one array, filled anew.
    """
    if isinstance(image, np.ndarray):
        return read_picture(image)
    if isinstance(image, str | os.PathLike):
        data = _read_file(Path(image))
    elif isinstance(image, bytes | bytearray | memoryview):
        data = bytes(image)
    else:
        expected = "the bytes of a file, a path, or a picture as an array"
        raise ImageError("client", "unsupported", f"image: expected {expected}, got {type(image).__name__}")
    return Item("pipeline", "raw_image", (len(data),), data)


def _read_or_error(image: Image) -> Item | ImageError:
    try:
        return read_item(image)
    except ImageError as error:
        return error


def read_picture(picture: Any) -> Item:
    """Raises ImageError where it is no array uint8 (H, W, 3)."""
    is_array = isinstance(picture, np.ndarray)
    if not is_array or picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape:
        got = f"{picture.dtype} {picture.shape}" if is_array else type(picture).__name__
        raise ImageError("client", "unsupported", f"picture: expected uint8 of shape (H, W, 3), got {got}")
    return Item("pipeline_frames", "frame", picture.shape, picture.tobytes())


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ImageError("client", "unreadable", f"{path}: expected a file that can be read, got: {reason}") from error


def batches(
    images: Iterable[Image], batch_size: int, window: int = WINDOW
) -> Iterator[tuple[list[int], list[Item] | ImageError]]:
    """Gather images into batches of at most `batch_size`, those of like length together, looking `window` ahead.

    Yields the places of the images in `images`, and the images; or one place, and why that image cannot be sent.
    """
    numbered = enumerate(images)
    while ahead := [(place, _read_or_error(image)) for place, image in islice(numbered, window)]:
        items = []
        for place, item in ahead:
            if isinstance(item, ImageError):
                yield [place], item
            else:
                items.append((place, item))
        items.sort(key=lambda pair: (pair[1].tensor, pair[1].shape))
        for batch in _cut(items, batch_size):
            yield [place for place, _ in batch], [item for _, item in batch]


def _cut(items: list[tuple[int, Item]], batch_size: int) -> Iterator[list[tuple[int, Item]]]:
    batch: list[tuple[int, Item]] = []
    for place, item in items:
        first = batch[0][1] if batch else item
        is_full = len(batch) == batch_size or (len(batch) + 1) * len(item.data) > MAX_REQUEST_BYTES
        if batch and (is_full or not first.fits(item)):
            yield batch
            batch = []
        batch.append((place, item))
    if batch:
        yield batch


def batch_data(items: Sequence[Item]) -> tuple[list[int], bytes]:
    """The shape and the bytes of a batch, files padded with zeros to the longest."""
    longest = max(len(item.data) for item in items)
    shape = max(item.shape for item in items)
    if len(items) == 1:
        return [1, *shape], items[0].data  # as it is, without a copy
    return [len(items), *shape], b"".join(item.data.ljust(longest, b"\0") for item in items)
