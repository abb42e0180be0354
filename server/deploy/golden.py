"""The images that a new version must answer before any traffic sees it, and what it is measured by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ServerError
from .triton import Answer

Classify = Callable[[str, bytes], Answer]  # name and content of an image file
SHOWN = 3  # mistakes in a message


@dataclass(frozen=True)
class GoldenImage:
    """One file; `label` is the label or the class id that it must get, None where only agreement counts."""

    name: str
    file: Path
    label: str | None = None

    def is_right(self, answer: Answer) -> bool:
        return self.label in (answer.label, str(answer.class_id))


def read_golden(folder: Path) -> list[GoldenImage]:
    """`FOLDER/LABEL/file`, the label a class' name or id; or `FOLDER/file` for images without labels.

    Raises ServerError where there is nothing, or both.
    """
    if not folder.is_dir():
        raise ServerError(f"--golden: expected a folder of images, got {folder}")
    flat = [GoldenImage(path.name, path) for path in visible_files(folder)]
    labelled = [
        GoldenImage(f"{inner.name}/{path.name}", path, inner.name)
        for inner in sorted(folder.iterdir())
        if inner.is_dir()
        for path in visible_files(inner)
    ]
    if bool(flat) == bool(labelled):
        got = "both" if flat else "none"
        raise ServerError(f"--golden: expected images in {folder}, or in folders named by their label, got {got}")
    return flat or labelled


def visible_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def answers_of(images: Sequence[GoldenImage], classify: Classify) -> list[Answer]:
    return [classify(image.name, image.file.read_bytes()) for image in images]


def check_labels(images: Sequence[GoldenImage], answers: Sequence[Answer]) -> str:
    """In words that all have their label; raises ServerError where one has another."""
    wrong = [
        f"{image.name}: {answer.class_id} {answer.label} ({answer.score:.1%})"
        for image, answer in zip(images, answers, strict=True)
        if not image.is_right(answer)
    ]
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ServerError(
            f"golden images: expected each folder's label, got another for {len(wrong)} of {len(images)}: "
            f"{', '.join(wrong[:SHOWN])}{more}"
        )
    return f"{len(images)} golden images have their label"


def check_agreement(expected: Sequence[Answer], answers: Sequence[Answer], min_agreement: float, of: str) -> str:
    """In words how often the top-1 is the same; raises ServerError where that is too seldom."""
    same = sum(one.class_id == other.class_id for one, other in zip(expected, answers, strict=True))
    found = f"the same top-1 as {of} on {same} of {len(answers)}"
    if same < min_agreement * len(answers):
        raise ServerError(f"golden images: expected {of}'s top-1 on {min_agreement:.1%} at least, got {found}")
    return found
