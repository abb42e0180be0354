"""From the network's outputs to ranked classes."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Turn finite float32 (N, classes) logits into probabilities of the same shape: exp(x) / sum(exp(x)), row by row.

    The row's maximum is subtracted first, which changes nothing but keeps exp() from overflowing.
    """
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def sigmoid(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Turn finite float32 (N, classes) logits into scores of the same shape, each class for itself: 1 / (1 + exp(-x)).

    exp() is taken of -|x| alone, which cannot overflow.
    """
    exponentials = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, exponentials) / (1 + exponentials)  # type: ignore[no-any-return]


def unchanged(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """For a network that gives scores itself."""
    return scores


ACTIVATIONS: dict[str, Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]] = {
    "softmax": softmax,  # one class is right: the scores of an image add up to 1
    "sigmoid": sigmoid,  # several may be
    "none": unchanged,
}


MAX_PASSES = 50  # over all classes; beyond, sorting them is cheaper


def rank(
    scores: npt.NDArray[np.float32], top_k: int, threshold: float
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Find the `top_k` classes of float32 (N, classes) scores, the highest first, equal scores by class id.

    Returns class_id int32 (N, top_k) and score float32 (N, top_k); -1 and 0 stand where a score is below `threshold`.
    """
    class_id = _highest(scores, top_k) if top_k <= MAX_PASSES else _sorted(scores)[:, :top_k]
    score = scores[np.arange(len(scores))[:, np.newaxis], class_id]
    below = score < np.float32(threshold)
    class_id[below], score[below] = -1, 0
    return class_id, score


def _highest(scores: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int32]:
    """Take the highest of each row (N, classes) `count` times: for the first 5 far quicker than sorting the row."""
    left = scores.copy()
    class_id = np.empty((len(scores), count), np.int32)
    rows = np.arange(len(scores))
    for place in range(count):
        class_id[:, place] = left.argmax(axis=1)  # the first of equal ones
        left[rows, class_id[:, place]] = -np.inf
    return class_id


def _sorted(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    return np.argsort(-scores, axis=1, kind="stable").astype(np.int32)
