"""The client itself: one image file in, its classes out, over gRPC or HTTP."""

import importlib
import re
from types import TracebackType
from typing import Any

import numpy as np

from .errors import ServiceError, error_from_text
from .results import OUTPUTS, ImageResult, read_results

DEFAULT_URL = "grpc://127.0.0.1:8001"
DEFAULT_PORTS = {"grpc": 8001, "http": 8000}
_URL = re.compile(r"(?P<scheme>grpc|http)://(?P<host>[\w.-]+|\[[\da-f:]+\])(:(?P<port>\d{1,5}))?/?", re.ASCII)


class PipelineClient:
    """A connection to a Triton server that has the ensemble `pipeline`; closed on the way out of a `with`.

    `url` is grpc://HOST[:PORT] or http://HOST[:PORT]; `timeout_s` bounds each call. Raises ValueError for another URL.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout_s: float = 30) -> None:
        self.url, self.timeout_s = url, timeout_s
        scheme, address = split_url(url)
        self._is_grpc = scheme == "grpc"
        # One interface, two modules; each brings its own heavy dependencies, so only the one in use is imported.
        self._triton = importlib.import_module(f"tritonclient.{scheme}")
        options: dict[str, Any] = {"connection_timeout": timeout_s, "network_timeout": timeout_s}
        if self._is_grpc:
            options = {"channel_args": _channel_arguments(address)}
        self._client = self._triton.InferenceServerClient(address, **options)

    def __enter__(self) -> "PipelineClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def classify(self, file: bytes, top_k: int | None = None, threshold: float | None = None) -> ImageResult:
        """Classify one image file, given as its bytes; `top_k` and `threshold` are the pipeline's defaults where None.

        Raises ImageError where the pipeline refuses the image or a parameter, ServiceError where the server fails.
        """
        raw_image = self._triton.InferInput("raw_image", [1, len(file)], "UINT8")
        raw_image.set_data_from_numpy(np.frombuffer(file, np.uint8)[np.newaxis])
        parameters = {"top_k": top_k, "threshold": threshold}
        answer = self._infer(raw_image, {key: value for key, value in parameters.items() if value is not None})
        (result,) = read_results(answer)
        return result

    def _infer(self, raw_image: Any, parameters: dict[str, int | float]) -> Any:
        timeout = {"client_timeout": self.timeout_s} if self._is_grpc else {}
        outputs = [self._triton.InferRequestedOutput(name) for name in OUTPUTS]
        exception = self._triton.InferenceServerException
        try:
            return self._client.infer("pipeline", [raw_image], outputs=outputs, parameters=parameters, **timeout)
        except exception as error:
            if _is_answer(error.status()):
                raise error_from_text(error.message()) from error
            raise self._no_answer(error.message()) from error
        except Exception as error:  # over HTTP tritonclient lets through what its transport raises, of many kinds
            raise self._no_answer(getattr(error, "strerror", None) or str(error) or type(error).__name__) from error

    def _no_answer(self, got: str) -> ServiceError:
        return ServiceError(f"{self.url}: expected the answer of a Triton server that has `pipeline`, got: {got}")


def split_url(url: str) -> tuple[str, str]:
    """Split grpc://host[:port] or http://host[:port] into its scheme and host:port; raise ValueError for another."""
    match = _URL.fullmatch(url)
    if match is None or int(match["port"] or 1) not in range(1, 65536):
        raise ValueError(f"url: expected grpc://HOST:PORT or http://HOST:PORT, got {url}")
    return match["scheme"], f"{match['host']}:{match['port'] or DEFAULT_PORTS[match['scheme']]}"


def _channel_arguments(address: str) -> list[tuple[str, int]]:
    """No limit on a message's size; and no proxy between us and this machine, which gRPC else would ask for it."""
    arguments = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    if address.startswith(("127.", "localhost:", "[::1]:")):
        arguments.append(("grpc.enable_http_proxy", 0))
    return arguments


def _is_answer(status: str | None) -> bool:
    """Whether a failure is the server's own answer, of which the text follows the contract, and not the network's."""
    return status in ("StatusCode.INVALID_ARGUMENT", "StatusCode.INTERNAL", "400", "500")
