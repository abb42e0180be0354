"""Copies of images with their labels and score bars drawn on (`--annotate DIR`)."""

import os
import subprocess
import textwrap
from functools import lru_cache
from io import BytesIO
from itertools import accumulate
from math import ceil, isqrt
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ..results import ImageResult
from .files import written_beside

MIN_SIDE = 240  # pixels: on a smaller picture text would hide what it is about
MIN_TEXT = 12  # pixels
PLATE, TRACK, INK = (14, 17, 22, 215), (96, 102, 112, 255), (255, 255, 255, 255)
BAR, ALARM = (84, 190, 255, 255), (255, 138, 128, 255)
BUILT_IN = ("", 0)  # Pillow's own font, which has hardly more than ASCII


class UnreadableImageError(ValueError):
    """The file cannot be opened as an image, so nothing can be drawn on it."""


class Row(NamedTuple):
    """One line of the plate, with a bar under it where it has a score."""

    text: str
    score: float | None = None  # 0 to 1
    colour: tuple[int, int, int, int] = INK

    @property
    def height(self) -> float:  # in text heights
        return 1.35 if self.score is None else 1.95


def write_copy(file: bytes | Path, result: ImageResult, folder: Path, name: PurePath, replace: bool = False) -> Path:
    """Write an annotated copy of an image file below `folder` and return its path.

    `file` is the image's bytes or its path, `name` the copy's path within `folder`. A JPEG stays one, anything else
    becomes a PNG; where `name` ends otherwise, `.jpg` or `.png` is appended (`a.webp` becomes `a.webp.png`).
    Raises UnreadableImageError where Pillow cannot open the file, ValueError where `name` leads out of `folder`,
    FileExistsError rather than overwrite a file, unless it may `replace` it, and `file` itself never; OSError where it
    cannot be written. Then nothing was written.
    """
    image, file_format = open_upright(file)
    endings = (".jpg", ".jpeg") if file_format in ("JPEG", "MPO") else (".png",)
    target = folder / (name if name.suffix.lower() in endings else name.with_name(name.name + endings[0]))
    if not target.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"name: expected a path within {folder}, got {name}")
    is_itself = isinstance(file, Path) and target.exists() and target.samefile(file)
    if target.exists() and (is_itself or not replace):
        raise FileExistsError(f"{target}: expected no file of that name, got one; it is left as it is")
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(target) as beside:
        encoder = "PNG" if endings == (".png",) else "JPEG"
        draw(image, result).save(beside, encoder, quality=90, icc_profile=image.info.get("icc_profile"))
        if not replace:
            target.open("xb").close()  # takes the name, and fails where another thread was faster
    return target


def open_upright(file: bytes | Path, about: int | None = None) -> tuple[Image.Image, str | None]:
    """Open an image file as RGB, upright by its EXIF orientation, alpha dropped as the pipeline does.

    Returns it with the name of its format. A JPEG is decoded at an eighth to all of its size, whichever is the
    smallest with no side below `about` pixels. Raises UnreadableImageError.
    """
    try:
        with Image.open(BytesIO(file) if isinstance(file, bytes) else file) as image:
            if about:
                image.draft("RGB", (about, about))
            return to_rgb(ImageOps.exif_transpose(image)), image.format
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        raise UnreadableImageError(f"expected an image that Pillow can open, got {type(error).__name__}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):  # convert() would clip what is above 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode not in ("RGB", "RGBA"):
        image.info.pop("icc_profile", None)  # it describes other channels than the copy's
    return image.convert("RGB")


def draw_on_frame(frame: npt.NDArray[np.uint8], result: ImageResult) -> npt.NDArray[np.uint8]:
    """Draw on uint8 (H, W, 3) in R, G, B order; the shape stays where H and W are 240 or more, see draw()."""
    return np.asarray(draw(Image.fromarray(frame), result))


def draw(image: Image.Image, result: ImageResult) -> Image.Image:
    """Draw the classes of an RGB image, or why it has none, on a copy.

    The plate lies on the picture's lower left and takes at most 60 % of its height; classes that find no room are
    counted there. Where a side is below 240 pixels the plate lies under the picture, which is first enlarged by a whole
    factor until its longer side has 240.
    """
    if max(image.size) < MIN_SIDE:
        image = ImageOps.scale(image, ceil(MIN_SIDE / max(image.size)), Image.Resampling.NEAREST)
    text_px = max(MIN_TEXT, min(isqrt(image.width * image.height) // 32, min(image.size) // 20))
    if min(image.size) < MIN_SIDE:
        plate = draw_plate(result, max(image.width, MIN_SIDE), text_px)
        canvas = Image.new("RGB", (plate.width, image.height + plate.height), PLATE[:3])
        canvas.paste(image)
        canvas.paste(plate.convert("RGB"), (0, image.height))
    else:
        margin = text_px // 2
        plate = draw_plate(result, min(image.width - 2 * margin, 20 * text_px), text_px, 0.6 * image.height)
        canvas = image.copy()
        canvas.paste(plate, (margin, image.height - plate.height - margin), plate)
    return canvas


def draw_plate(result: ImageResult, width: int, text_px: int, max_height: float = float("inf")) -> Image.Image:
    """Draw the rows of a result on a translucent ground: RGBA, `width` pixels wide, as high as they need."""
    rows = within(list_rows(result, int((width - text_px) / (0.6 * text_px))), max_height / text_px - 1)
    plate = Image.new("RGBA", (width, round(text_px * (1 + sum(row.height for row in rows)))))
    pen = ImageDraw.Draw(plate)
    pen.rounded_rectangle((0, 0, plate.width - 1, plate.height - 1), text_px // 3, PLATE)
    top = text_px / 2
    for row in rows:
        draw_row(pen, row, (text_px / 2, top, width - text_px / 2), text_px)
        top += row.height * text_px
    return plate


def list_rows(result: ImageResult, characters: int) -> list[Row]:
    if result.error:
        reason = " ".join(str(result.error).split())
        return [Row("not classified", colour=ALARM), *map(Row, textwrap.wrap(reason, max(characters, 1)))]
    return [Row(one.label, one.score) for one in result.classes] or [Row("no class reaches the threshold")]


def within(rows: list[Row], max_height: float) -> list[Row]:
    """Leave out the rows that go beyond `max_height`, in text heights, and say how many."""
    shown = sum(bottom <= max_height for bottom in accumulate(row.height for row in rows))
    return rows if shown == len(rows) else [*rows[: shown - 1], Row(f"… {len(rows) - shown + 1} more")]


def draw_row(pen: ImageDraw.ImageDraw, row: Row, box: tuple[float, float, float], text_px: int) -> None:
    """Draw text, percentage and bar between the left, top and right of `box`, in pixels."""
    left, top, right = box
    baseline, text_right = top + text_px, right
    if row.score is not None:
        percentage, font = f"{row.score:.1%}", load_font(BUILT_IN, text_px)
        text_right -= font.getlength(percentage) + text_px / 2
        pen.text((right, baseline), percentage, row.colour, font, anchor="rs")
        bar = (left, top + 1.35 * text_px, right, top + 1.52 * text_px)
        pen.rectangle(bar, TRACK)
        pen.rectangle((left, bar[1], left + (right - left) * row.score, bar[3]), BAR)
    text, face = drawable(row.text)
    font = load_font(face, text_px)
    pen.text((left, baseline), ellipsized(text, font, text_right - left), row.colour, font, anchor="ls")


def ellipsized(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """Cut the end off a text that is wider than `width` pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def drawable(text: str) -> tuple[str, tuple[str, int]]:
    """Find a font that has all characters of a text; where there is none, write what it lacks as `\\u732b`."""
    text = " ".join(text.split())
    characters = "".join(sorted(set(filter(str.isprintable, text))))
    faces = [face for face in (BUILT_IN, system_face(characters)) if all(has_glyph(face, one) for one in characters)]
    face = faces[0] if faces else system_face(characters)
    written = (one if has_glyph(face, one) else one.encode("unicode_escape").decode() for one in text)
    return "".join(written), face


@lru_cache(maxsize=4096)
def system_face(characters: str) -> tuple[str, int]:
    """Ask fontconfig for the file, and the index within it, of the font that has the most of these characters."""
    wanted = "sans:charset=" + " ".join(f"{ord(one):x}" for one in characters)
    command = ["fc-match", "--format=%{file}\n%{index}", wanted]
    try:
        path, index = subprocess.run(command, capture_output=True, check=True, timeout=10).stdout.split(b"\n")
        face = (os.fsdecode(path), int(index))
        load_font(face, MIN_TEXT)
    except (OSError, ValueError, subprocess.SubprocessError):  # no fontconfig, or a font of bitmaps only
        return BUILT_IN
    return face


@lru_cache(maxsize=4096)
def has_glyph(face: tuple[str, int], character: str) -> bool:
    font = load_font(face, MIN_TEXT)
    return character.isprintable() and bytes(font.getmask(character)) != bytes(font.getmask("\uffff"))


@lru_cache
def load_font(face: tuple[str, int], text_px: int) -> ImageFont.FreeTypeFont:
    path, index = face
    font = ImageFont.truetype(path, text_px, index) if path else ImageFont.load_default(text_px)
    assert isinstance(font, ImageFont.FreeTypeFont)  # what load_default(size) returns wherever FreeType is
    return font
