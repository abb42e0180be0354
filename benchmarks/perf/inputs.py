"""What is sent to the pipeline and to each step alone, in the form that perf_analyzer takes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.perf_analyzer import write_entries, write_input_data

from .server_statistics import ENSEMBLE

MOST_FILES = 64  # perf_analyzer holds all of them in memory, as text
LOGITS_ENTRIES = 16


def write_inputs(files: Sequence[Path], steps: Sequence[str], classes: int, folder: Path) -> dict[str, dict[str, str]]:
    """perf_analyzer's options by model, the pipeline first; their files are written into `folder`.

    The classifier gets the random tensors that perf_analyzer makes from its configuration: a network takes as long for
    them as for images.
    """
    first, classifier, last = steps
    return {
        ENSEMBLE: write_input_data(files, folder / "pipeline.json"),
        first: {"-m": first, "--input-data": str(folder / "pipeline.json")},
        classifier: {"-m": classifier},
        last: write_entries(logits_entries(classes), folder / "logits.json", last),
    }


def logits_entries(classes: int) -> list[Mapping[str, Any]]:
    """Inputs of `postprocess`: logits of normal distribution, and an empty `error`, with which an image is ranked."""
    logits = np.random.default_rng(0).normal(0, 3, (LOGITS_ENTRIES, classes))
    return [
        {
            "logits": {"content": row.tolist(), "shape": [classes]},
            "error": {"content": [""], "shape": [1]},
        }
        for row in logits
    ]
