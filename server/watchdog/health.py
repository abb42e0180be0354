"""What the watchdog tells: GET /ready, /live and /metrics.

`/ready` is for load balancers: 200 where a real image gets through all steps. `/live` is for whoever would start the
container again: it fails only where the watchdog itself hangs, since Triton is the watchdog's own business.
"""

import http.server
import threading
import time
from collections import Counter
from types import TracebackType

from ..checks import check_port
from ..errors import ServerError

MAX_SILENCE_S = 60  # of the watchdog, beyond the time in which a model may load


class Health:
    """The state of the service. Written by the watchdog, read by the endpoint."""

    def __init__(self, ready_timeout_s: float) -> None:
        self.not_ready = "starting"  # the reason; empty where it is ready
        self.heals: Counter[str] = Counter()  # by model
        self.restarts = 0
        self._max_silence_s = ready_timeout_s + MAX_SILENCE_S
        self._looked_s = time.monotonic()

    def looked(self) -> None:
        """The watchdog has come round."""
        self._looked_s = time.monotonic()

    @property
    def is_live(self) -> bool:
        return time.monotonic() - self._looked_s < self._max_silence_s

    def metrics(self) -> str:
        """In Prometheus' text format."""
        lines = [
            "# HELP triton_classify_ready 1 where a real image gets through all steps.",
            "# TYPE triton_classify_ready gauge",
            f"triton_classify_ready {int(not self.not_ready)}",
            "# HELP triton_classify_server_restarts_total Times that Triton was started again.",
            "# TYPE triton_classify_server_restarts_total counter",
            f"triton_classify_server_restarts_total {self.restarts}",
            "# HELP triton_classify_model_heals_total Times that a model was loaded again for a dead process.",
            "# TYPE triton_classify_model_heals_total counter",
            *(f'triton_classify_model_heals_total{{model="{name}"}} {count}' for name, count in self.heals.items()),
        ]
        return "\n".join(lines) + "\n"

    def answer(self, path: str) -> tuple[int, str]:
        """HTTP status and body."""
        if path == "/ready":
            return (503, f"{self.not_ready}\n") if self.not_ready else (200, "ready\n")
        if path == "/live":
            return (200, "live\n") if self.is_live else (503, "the watchdog hangs\n")
        if path == "/metrics":
            return 200, self.metrics()
        return 404, "expected /ready, /live or /metrics\n"


class HealthEndpoint:
    """Serves a Health until the `with` block ends. Raises ServerError where the port cannot be had."""

    def __init__(self, host: str, port: int, health: Health) -> None:
        problems = check_port(host, "health", port)
        if problems:
            raise ServerError(problems[0])

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 10  # for a client that sends nothing

            def do_GET(self) -> None:  # the name that the base class calls
                status, body = health.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *arguments: object) -> None:
                """A probe each second is no news."""

        self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> "HealthEndpoint":
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
