"""What a deployment asks of the running Triton: load, unload, classify."""

import json
import math
import time
from dataclasses import dataclass
from typing import Any

from ..errors import ServerError
from ..triton_client import TritonClient

LOAD_TIMEOUT_S = 300  # a large network on a slow disk; TensorRT builds for minutes
UNLOAD_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 30
SETTLE_S = 0.5  # an unload that follows a load at once can crash Triton
POLL_S = 0.1
BUSY = 503
OUTPUTS = ("class_id", "score", "label", "error")


@dataclass(frozen=True)
class Answer:
    """The best class of one image."""

    class_id: int
    score: float
    label: str


class Triton:
    """Raises ServerError where Triton refuses; OSError or http.client.HTTPException where it does not answer."""

    def __init__(self, client: TritonClient) -> None:
        self.client = client

    def states(self, model: str) -> dict[int, str]:
        """The state of each version that was ever loaded, by number."""
        _, index = self.client.index()
        return {int(one["version"]): one["state"] for one in index if one["name"] == model and "state" in one}

    def load(self, model: str) -> float:
        """Load what stands in the repository now; returns the seconds that it took."""
        started = time.monotonic()
        reason = self.client.load(model, LOAD_TIMEOUT_S)
        if reason:
            first = reason.split("\n\n")[0]
            raise ServerError(f"model {model}: expected Triton to load it, got: {first}")
        time.sleep(SETTLE_S)
        return time.monotonic() - started - SETTLE_S

    def unload(self, model: str) -> None:
        """Returns when its requests are answered and it is gone."""
        self.client.unload(model, UNLOAD_TIMEOUT_S)
        self.wait_for_unloads(model)

    def wait_for_unloads(self, model: str) -> None:
        """Until then Triton says of itself, on /v2/health/ready, that it is not ready, though it answers."""
        deadline = time.monotonic() + UNLOAD_TIMEOUT_S
        while "UNLOADING" in self.states(model).values():
            if time.monotonic() > deadline:
                raise ServerError(f"model {model}: expected it to be unloaded within {UNLOAD_TIMEOUT_S} s, it was not")
            time.sleep(POLL_S)

    def classify(self, model: str, name: str, file: bytes) -> Answer:
        """An ensemble's answer for one image file, `name` in messages; a busy server is asked again for a while."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        header, body = request_body(file)
        path, headers = f"/v2/models/{model}/infer", {"Inference-Header-Content-Length": str(header)}
        while True:
            status, reply = self.client.send("POST", path, body, headers, ANSWER_TIMEOUT_S)
            if status == 200:
                return read_answer(json.loads(reply), name)
            if status != BUSY or time.monotonic() > deadline:
                raise ServerError(f"{model}: {name}: expected an answer, got: {reply.decode(errors='replace')}")
            time.sleep(POLL_S)


def request_body(file: bytes) -> tuple[int, bytes]:
    """One image file in, the best class out as JSON: the length of the JSON header, and header and file."""
    tensor = {"name": "raw_image", "shape": [1, len(file)], "datatype": "UINT8"}
    header = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": len(file)}}],
            "outputs": [{"name": name, "parameters": {"binary_data": False}} for name in OUTPUTS],
            "parameters": {"top_k": 1},
        }
    ).encode()
    return len(header), header + file


def read_answer(reply: dict[str, Any], name: str) -> Answer:
    """Raises ServerError where the scores are not finite, or the image has an error."""
    values = {output["name"]: output["data"][0] for output in reply["outputs"]}
    if values["error"] or not math.isfinite(values["score"]):
        raise ServerError(f"{name}: expected a class with a score, got {values['error'] or values['score']}")
    return Answer(values["class_id"], values["score"], values["label"])
