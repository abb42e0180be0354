"""`python -m benchmarks.comparison.load.direct`: a client that preprocesses by the service's code, and sends tensors.

Its threads share one channel; only the network runs in Triton.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from benchmarks.comparison.load.closed_loop import serve_classifier
from benchmarks.comparison.rivals.network import ranked
from benchmarks.comparison.rivals.transforms import ours


def main(folder: str, address: str, model: str, labels: str) -> None:
    """Arguments: the folder of images, HOST:PORT of Triton's gRPC, the model in it, the file of labels."""
    client = triton.InferenceServerClient(address)
    names = Path(labels).read_text("utf-8").splitlines()

    def classify(file: bytes) -> dict[str, Any]:
        batch = ours(file)[np.newaxis]
        tensor = triton.InferInput("input", batch.shape, "FP32")
        tensor.set_data_from_numpy(batch)
        result = client.infer(model, [tensor], outputs=[triton.InferRequestedOutput("logits")])
        return ranked(result.as_numpy("logits")[0], names)

    serve_classifier(classify, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
