"""FastAPI in front of Triton, as tutorials have it: one process, base64 in JSON, Pillow, an `async def` that blocks.

The event loop stands still while it decodes and while Triton computes. With `def` instead FastAPI would take a thread
for each request; improved_gateway.py goes further.
"""

import base64
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from fastapi import FastAPI
from pydantic import BaseModel

from .network import ranked
from .settings import read_settings
from .transforms import TRANSFORMS

settings = read_settings()
labels, transform = settings.read_labels(), TRANSFORMS[settings.transform]
client = triton.InferenceServerClient(settings.triton_address)
app = FastAPI()


class ImageRequest(BaseModel):
    image: str  # base64 of the file


@app.post("/classify")
async def classify(request: ImageRequest) -> dict[str, Any]:
    batch = np.ascontiguousarray(transform(base64.b64decode(request.image))[np.newaxis])
    tensor = triton.InferInput("input", batch.shape, "FP32")
    tensor.set_data_from_numpy(batch)
    result = client.infer(settings.triton_model, [tensor], outputs=[triton.InferRequestedOutput("logits")])
    return ranked(result.as_numpy("logits")[0], labels)
