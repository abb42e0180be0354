"""The names of the classes."""

from pathlib import Path

import numpy as np
import numpy.typing as npt


def load_labels(path: Path, classes: int) -> npt.NDArray[np.object_]:
    """Read one UTF-8 label a line, line i for class i.

    Returns object (classes + 1,) of UTF-8 bytes; the last is empty, so that index -1, no class, has no label.
    Raises ValueError where the file is not there or its lines are not as many as the classes.
    """
    if not path.is_file():
        raise ValueError(f"labels: expected one label a line in {path}, got no such file: run `make repository`")
    labels = path.read_text("utf-8").splitlines()
    if len(labels) != classes:
        raise ValueError(
            f"labels: expected {classes} lines, as many as the logits of config.pbtxt, got {len(labels)} in {path}"
        )
    return np.array([label.encode() for label in labels] + [b""], dtype=object)
