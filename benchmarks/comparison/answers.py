"""Whether a contender answers rightly: who is fast and wrong is out."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from benchmarks.errors import BenchmarkError
from benchmarks.reference import reference_input

from .contenders import Contender
from .rivals.transforms import MEAN, STD

# The transforms differ by one level of 255 in some pixels, which decides between classes that are nearly equal.
TOLERANCE = 0.01  # of the range of an image's logits


def reference_logits(model: Path, files: Sequence[Path]) -> list[npt.NDArray[np.float32]]:
    """By Pillow, numpy and ONNX Runtime: float32 (classes,) for each file."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    images = [reference_input(file.read_bytes(), mean=MEAN, std=STD).astype(np.float32) for file in files]
    return [session.run(None, {session.get_inputs()[0].name: image[np.newaxis]})[0][0] for image in images]


def check_answers(contenders: Iterable[Contender], files: Sequence[Path], model: Path) -> None:
    """Ask each for the class of each file. Raises BenchmarkError where it is not the reference's, nor as good."""
    expected = reference_logits(model, files)
    for contender in contenders:
        for file, logits in zip(files, expected, strict=True):
            check_class(contender.name, file, contender.top_class(file), logits)


def check_class(name: str, file: Path, got: int, logits: npt.NDArray[np.float32]) -> None:
    behind = (logits.max() - logits[got]) / np.ptp(logits)
    if behind > TOLERANCE:
        raise BenchmarkError(
            f"{name}: expected class {logits.argmax()} for {file.name}, got {got}, whose logit is {behind:.0%} of "
            f"their range below, where {TOLERANCE:.0%} is allowed"
        )
