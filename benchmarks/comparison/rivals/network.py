"""ONNX Runtime in the server's own process, and the answer that every server gives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

TOP_K = 5  # as `pipeline` by default


class Network:
    """The ONNX file on `threads` threads; 0 is one a core."""

    def __init__(self, model: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def __call__(self, batch: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Float32 (N, 3, H, W) to logits, float32 (N, classes)."""
        logits: npt.NDArray[np.float32] = self._session.run(None, {self._input: batch})[0]
        return logits


def ranked(logits: npt.NDArray[np.float32], labels: Sequence[str]) -> dict[str, Any]:
    """The TOP_K classes of one image's logits (classes,), by softmax, highest first."""
    exponentials = np.exp(logits - logits.max())
    scores = exponentials / exponentials.sum()
    best = np.argpartition(scores, -TOP_K)[-TOP_K:]
    best = best[np.argsort(-scores[best])]
    classes = [{"class_id": int(index), "score": float(scores[index]), "label": labels[index]} for index in best]
    return {"classes": classes}
