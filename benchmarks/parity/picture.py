"""The worst cases side by side, as one picture: service, reference, and their difference amplified."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from .comparison import FileResult

GAP = 8  # pixels, around everything
LINE = 16  # pixels
TEXT_SIZE = 12  # pixels
COLUMNS = ("service", "reference", "difference x {factor}")
MAX_FACTOR = 100  # one level of 255 then is a well visible gray
MAX_NAME = 90  # characters, the last ones


@dataclass(frozen=True)
class Case:
    """One file with both crops, uint8 (H, W, 3)."""

    result: FileResult
    served: npt.NDArray[np.uint8]
    reference: npt.NDArray[np.uint8]

    @property
    def mean(self) -> float:
        return self.result.difference.mean_normalized if self.result.difference else 0


def worst(cases: Sequence[Case], count: int) -> list[Case]:
    """The `count` cases with the largest mean difference, the worst first."""
    return sorted(cases, key=lambda case: case.mean, reverse=True)[:count]


def denormalized(
    normalized: npt.NDArray[np.floating[Any]], mean: Sequence[float], std: Sequence[float]
) -> npt.NDArray[np.uint8]:
    """From (3, H, W) back to uint8 (H, W, 3), clipped to the levels that a picture can show."""
    levels = (normalized.transpose(1, 2, 0).astype(np.float64) * std + mean) * 255
    return np.nan_to_num(levels).round().clip(0, 255).astype(np.uint8)


def amplified(served: npt.NDArray[np.uint8], reference: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], int]:
    """The absolute difference times the largest factor that clips nothing, at most MAX_FACTOR; and the factor."""
    difference = np.abs(served.astype(int) - reference)
    factor = min(MAX_FACTOR, 255 // max(int(difference.max()), 1))
    return (difference * factor).astype(np.uint8), factor


def caption(case: Case) -> list[str]:
    """The lines under a case. Letters that a file's name has and the font has not are escaped."""
    result, difference = case.result, case.result.difference
    name = result.path.encode("ascii", "backslashreplace").decode()
    classes = [f"{one.class_id} ({one.score:.4f})" if one else "none" for one in (result.served, result.expected)]
    figures = (
        f"largest {difference.largest_levels:.2f} levels, mean {difference.mean_normalized:.6f}; " if difference else ""
    )
    return [
        name if len(name) <= MAX_NAME else f"...{name[-MAX_NAME:]}",
        f"{figures}class {classes[0]}, torch's {classes[1]}: {result.verdict}",
    ]


def picture_size(cases: int, height: int, width: int) -> tuple[int, int]:
    """Width and height of a picture of so many cases with crops of (height, width)."""
    return len(COLUMNS) * (width + GAP) + GAP, cases * (height + 3 * LINE + 2 * GAP) + GAP


def draw(cases: Sequence[Case]) -> Image.Image:
    """Draw one row a case; there has to be at least one, and their crops are of one size."""
    height, width = cases[0].reference.shape[:2]
    picture = Image.new("RGB", picture_size(len(cases), height, width), "white")
    canvas = ImageDraw.Draw(picture)
    font = ImageFont.load_default(TEXT_SIZE)
    row_height = height + 3 * LINE + 2 * GAP
    for row, case in enumerate(cases):
        top = GAP + row * row_height
        difference, factor = amplified(case.served, case.reference)
        for column, (title, crop) in enumerate(zip(COLUMNS, (case.served, case.reference, difference), strict=True)):
            left = GAP + column * (width + GAP)
            canvas.text((left, top), title.format(factor=factor), "black", font)
            picture.paste(Image.fromarray(crop), (left, top + LINE))
        for number, line in enumerate(caption(case)):
            canvas.text((GAP, top + LINE + height + GAP // 2 + number * LINE), line, "black", font)
    return picture
