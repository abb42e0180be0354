"""FastAPI in front of Triton, improved: a worker a core, raw bytes (or base64 in JSON), asyncio's client of Triton.

The transform runs in a thread, so that the event loop goes on.
"""

import asyncio
import base64
import json
from typing import Any

import numpy as np
import tritonclient.grpc.aio as triton
from fastapi import FastAPI, Request

from .network import ranked
from .settings import read_settings
from .transforms import TRANSFORMS

settings = read_settings()
labels, transform = settings.read_labels(), TRANSFORMS[settings.transform]
app = FastAPI()
client: Any = None


@app.post("/classify")
async def classify(request: Request) -> dict[str, Any]:
    global client
    if client is None:  # made in the event loop that will use it
        client = triton.InferenceServerClient(settings.triton_address)
    body = await request.body()
    if request.headers.get("content-type") == "application/json":
        body = base64.b64decode(json.loads(body)["image"])
    image = await asyncio.to_thread(transform, body)
    batch = np.ascontiguousarray(image[np.newaxis])
    tensor = triton.InferInput("input", batch.shape, "FP32")
    tensor.set_data_from_numpy(batch)
    result = await client.infer(settings.triton_model, [tensor], outputs=[triton.InferRequestedOutput("logits")])
    return ranked(result.as_numpy("logits")[0], labels)
