"""The reply to a plain HTTP upload (curl --data-binary): a JSON header, then the outputs as binary."""

import json

from tritonclient.http import InferResult

from .errors import ServiceError, error_from_text
from .results import ImageResult, read_results


def decode_reply(reply: bytes) -> list[ImageResult]:
    """Read the body that Triton sends back for `Inference-Header-Content-Length: 0`, one result an image.

    The header is as long as the reply's HTTP header Inference-Header-Content-Length says, which the body alone does
    not have: it ends where its JSON object does. Raises ImageError or ServiceError where the body is an error, and
    ServiceError where it is no whole reply.
    """
    try:
        header, length = json.JSONDecoder().raw_decode(reply.decode("latin-1"))  # one character a byte
    except json.JSONDecodeError as error:
        raise ServiceError(f"reply: expected JSON, then binary, got {_start(reply)}") from error
    if isinstance(header, dict) and "error" in header:
        raise error_from_text(header["error"])
    if not isinstance(header, dict) or "outputs" not in header:
        raise ServiceError(f"reply: expected a JSON object with outputs, got {_start(reply)}")
    binary = sum(output.get("parameters", {}).get("binary_data_size", 0) for output in header["outputs"])
    if len(reply) != length + binary:
        raise ServiceError(f"reply: expected {length} bytes of JSON and {binary} of outputs, got {len(reply)} in all")
    return read_results(InferResult.from_response_body(reply, header_length=length))


def _start(reply: bytes) -> str:
    return f"{len(reply)} bytes starting {reply[:8]!r}"
