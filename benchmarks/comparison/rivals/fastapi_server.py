"""FastAPI without any Triton: a worker a core, raw bytes, ONNX Runtime in the worker, no batches."""

from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool

from .network import Network, ranked
from .settings import read_settings
from .transforms import TRANSFORMS

settings = read_settings()
labels, transform = settings.read_labels(), TRANSFORMS[settings.transform]
network = Network(settings.model, int(settings.threads))
app = FastAPI()


def answer(file: bytes) -> dict[str, Any]:
    return ranked(network(transform(file)[np.newaxis])[0], labels)


@app.post("/classify")
async def classify(request: Request) -> dict[str, Any]:
    return await run_in_threadpool(answer, await request.body())
