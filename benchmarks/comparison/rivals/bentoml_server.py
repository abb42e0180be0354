"""BentoML: a worker a core, the file in a multipart form, ONNX Runtime in the workers, BentoML's adaptive batches."""

from pathlib import Path
from typing import Any

import bentoml
import numpy as np

from .network import Network, ranked
from .settings import read_settings
from .transforms import TRANSFORMS

MAX_BATCH_SIZE = 8
settings = read_settings()


@bentoml.service(workers=int(settings.workers), traffic={"timeout": 120}, metrics={"enabled": False})
class Classifier:
    def __init__(self) -> None:
        self.transform, self.labels = TRANSFORMS[settings.transform], settings.read_labels()
        self.network = Network(settings.model, int(settings.threads))

    @bentoml.api(batchable=True, max_batch_size=MAX_BATCH_SIZE)
    def classify(self, images: list[Path]) -> list[dict[str, Any]]:
        logits = self.network(np.stack([self.transform(image.read_bytes()) for image in images]))
        return [ranked(row, self.labels) for row in logits]
