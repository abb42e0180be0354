"""`python -m benchmarks.comparison.load.bare`: the transform and ONNX Runtime in one process, no server at all."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.comparison.load.closed_loop import serve_classifier
from benchmarks.comparison.rivals.network import Network, ranked
from benchmarks.comparison.rivals.transforms import TRANSFORMS


def main(folder: str, model: str, labels: str, transform_name: str, threads: str) -> None:
    """Arguments: the folder of images, the ONNX file, the file of labels, the transform, ONNX Runtime's threads."""
    network, transform = Network(model, int(threads)), TRANSFORMS[transform_name]
    names = Path(labels).read_text("utf-8").splitlines()

    def classify(file: bytes) -> dict[str, Any]:
        return ranked(network(transform(file)[np.newaxis])[0], names)

    serve_classifier(classify, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
