"""Two graphs side by side: how often they agree, and how fast they are on this machine."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from python_models.preprocess.transforms import normalization_table, normalize

from .recipes import Transform

BATCH = 8
ROUNDS = 5
RUNS = 3  # a round

Pixels = npt.NDArray[np.uint8]  # (N, 3, H, W)
Images = npt.NDArray[np.float32]  # (N, 3, H, W), normalized


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a quantized graph did against fp32 on images that it was not calibrated with."""

    images: int
    agreeing: int  # images with fp32's decision
    decision: str  # what was compared
    speed_up: float  # times fp32's throughput

    @property
    def agreement(self) -> float:
        return self.agreeing / self.images

    def described(self) -> dict[str, Any]:
        """For the manifest: what a second export would find again, so not the speed."""
        return {"held_out_images": self.images, "agreement_with_fp32": self.agreement}

    def __str__(self) -> str:
        return (
            f"the same {self.decision} on {self.agreeing} of {self.images} held-out images ({self.agreement:.1%}), "
            f"{self.speed_up:.2f} times the throughput at batch {BATCH} on this machine"
        )


def compare(
    reference: onnx.ModelProto, candidate: onnx.ModelProto, images: Images, activation: str = "softmax"
) -> Comparison:
    """Compare the decisions on each image, by the logits and their activation, and the speed."""
    expected, actual = (decisions(logits_of(graph, images), activation) for graph in (reference, candidate))
    seconds = interleaved_seconds([session(reference), session(candidate)], [images[:BATCH]] * 2)
    return Comparison(
        images=len(images),
        agreeing=int((expected == actual).all(axis=1).sum()),
        decision=decision_by(activation),
        speed_up=seconds[0] / seconds[1],
    )


def decision_by(activation: str) -> str:
    return "classes above 0.5" if activation == "sigmoid" else "top-1"


def decisions(logits: npt.NDArray[np.float32], activation: str) -> npt.NDArray[Any]:
    """What each row of (N, classes) says: by sigmoid whether each class has a score above 0.5, else the best class."""
    return logits > 0 if activation == "sigmoid" else logits.argmax(axis=1, keepdims=True)


def session(graph: Path | onnx.ModelProto) -> Any:
    """Load with a thread for every core, as config.pbtxt has it."""
    source = graph.SerializeToString() if isinstance(graph, onnx.ModelProto) else str(graph)
    return onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])


def logits_of(graph: Path | onnx.ModelProto, images: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Run in batches: (N, 3, H, W), of the type that the graph takes, to (N, classes)."""
    loaded = session(graph)
    (graph_input,) = loaded.get_inputs()
    batches = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
    return np.concatenate([loaded.run(None, {graph_input.name: batch})[0] for batch in batches])


def interleaved_seconds(sessions: Sequence[Any], batches: Sequence[npt.NDArray[Any]]) -> list[float]:
    """Medians of ROUNDS rounds of each, taking turns, so that other work on the machine slows all: seconds a run."""
    seconds: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for loaded, batch, measured in zip(sessions, batches, seconds, strict=True):
            feed = {loaded.get_inputs()[0].name: batch}
            loaded.run(None, feed)  # not counted: the threads of the one before still spin
            started = time.perf_counter()
            for _ in range(RUNS):
                loaded.run(None, feed)
            measured.append((time.perf_counter() - started) / RUNS)
    return [statistics.median(measured) for measured in seconds]


def normalized(pixels: Pixels, transform: Transform) -> Images:
    """What `preprocess` makes of these pixels."""
    table = normalization_table(transform.mean, transform.std)
    out = np.empty(pixels.shape, np.float32)
    for crop, target in zip(pixels, out, strict=True):
        normalize(np.ascontiguousarray(crop.transpose(1, 2, 0)), table, target)
    return out
