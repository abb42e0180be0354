"""What the launcher and `deploy` ask a Triton on this machine.

Over HTTP, but loading and unloading over gRPC: a model that loads for seconds would hold up every other connection of
the HTTP thread that the request falls to (Triton 24.10: one of eight).
"""

import contextlib
import http.client
import json
from typing import Any

import tritonclient.grpc
from tritonclient.utils import InferenceServerException

ADMIN_KEY_HEADER = "triton-admin-key"
NO_ANSWER = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")
TIMEOUT_S = 10


class TritonClient:
    """One connection an operation. Each raises OSError or http.client.HTTPException where Triton does not answer."""

    def __init__(self, host: str, port: int, grpc_port: int, metrics_port: int, admin_key: str) -> None:
        self.host, self.port, self.grpc_port, self.metrics_port = host, port, grpc_port, metrics_port
        self.admin_key = admin_key

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

    def load(self, model: str, timeout_s: float, config: dict[str, Any] | None = None) -> str:
        """Load what stands in the repository now, with another configuration where one is given.

        Returns Triton's reason where it fails, else "". Raises ConnectionError where Triton does not answer.
        """
        return self._control("load_model", model, timeout_s, config=config and json.dumps(config))

    def unload(self, model: str, timeout_s: float) -> str:
        """The same; answered before it is done."""
        return self._control("unload_model", model, timeout_s)

    def _control(self, operation: str, model: str, timeout_s: float, **arguments: Any) -> str:
        headers = {f"triton-grpc-protocol-{ADMIN_KEY_HEADER}": self.admin_key}
        url, no_proxy = f"{self.host}:{self.grpc_port}", [("grpc.enable_http_proxy", 0)]
        with contextlib.closing(tritonclient.grpc.InferenceServerClient(url, channel_args=no_proxy)) as client:
            try:
                getattr(client, operation)(model, headers=headers, client_timeout=timeout_s, **arguments)
            except InferenceServerException as error:
                if error.status() in NO_ANSWER:
                    raise ConnectionError(f"{url}: {error.message()}") from error
                return str(error.message())
        return ""

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
