"""What the launcher asks its Triton, over HTTP."""

import http.client
import json
from typing import Any

ADMIN_KEY_HEADER = "triton-admin-key"
TIMEOUT_S = 10


class TritonHttp:
    """One connection an operation. Each raises OSError or http.client.HTTPException where Triton does not answer."""

    def __init__(self, host: str, port: int, metrics_port: int, admin_key: str) -> None:
        self.host, self.port, self.metrics_port, self.admin_key = host, port, metrics_port, admin_key

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float = TIMEOUT_S) -> tuple[int, Any]:
        """HTTP status, and the reply's JSON, None where it has none."""
        data = b"" if body is None else json.dumps(body).encode()
        status, reply = self.send(method, path, data, {ADMIN_KEY_HEADER: self.admin_key}, timeout_s)
        return status, json.loads(reply) if reply else None

    def is_live(self) -> bool:
        try:
            status, _ = self.ask("GET", "/v2/health/live")
        except (OSError, http.client.HTTPException):
            return False
        return status == 200

    def classify(self, model: str, file: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Upload one image file to an ensemble, as plain curl does; HTTP status and reply."""
        path = f"/v2/models/{model}/infer"
        return self.send("POST", path, file, {"Inference-Header-Content-Length": "0"}, timeout_s)

    def index(self) -> tuple[int, list[dict[str, str]]]:
        """HTTP status, and each version of each model with its `state` and `reason`."""
        return self.ask("POST", "/v2/repository/index")

    def is_ready(self, model: str, version: str) -> bool:
        status, models = self.index()
        return status == 200 and any(
            (one["name"], one.get("version"), one.get("state")) == (model, version, "READY") for one in models
        )

    def config(self, model: str) -> dict[str, Any]:
        """A ready model's configuration as Triton completed it; empty for any other model."""
        status, config = self.ask("GET", f"/v2/models/{model}/config")
        return config if status == 200 else {}

    def load(self, model: str, config: dict[str, Any], timeout_s: float) -> str:
        """Load a model with this configuration, also where nothing has changed; the reason where it fails, else ""."""
        path = f"/v2/repository/models/{model}/load"
        status, reply = self.ask("POST", path, {"parameters": {"config": json.dumps(config)}}, timeout_s)
        return "" if status == 200 else str(reply and reply.get("error"))

    def request_counts(self) -> dict[str, int]:
        """How many requests each model has answered or failed since it was loaded."""
        _, reply = self.ask("GET", "/v2/models/stats")
        counts: dict[str, int] = {}
        for one in reply["model_stats"]:
            times = one["inference_stats"]
            counts[one["name"]] = counts.get(one["name"], 0) + times["success"]["count"] + times["fail"]["count"]
        return counts

    def metrics(self) -> str:
        """Triton's metrics page."""
        return _send(self.host, self.metrics_port, "GET", "/metrics", b"", {}, TIMEOUT_S)[1].decode()

    def send(self, method: str, path: str, body: bytes, headers: dict[str, str], timeout_s: float) -> tuple[int, bytes]:
        """HTTP status and reply; the admin key does not go along."""
        return _send(self.host, self.port, method, path, body, headers, timeout_s)


def _send(
    host: str, port: int, method: str, path: str, body: bytes, headers: dict[str, str], timeout_s: float
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()
