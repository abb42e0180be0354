"""The reply to a plain HTTP upload (curl --data-binary): a JSON header, then the outputs as binary."""

import json

from tritonclient.http import InferResult

from .errors import ServiceError, error_from_text
from .results import ImageResult, read_results


def decode_reply(reply: bytes) -> list[ImageResult]:
    """Read the body that Triton sends back for `Inference-Header-Content-Length: 0`, one result an image.

    The header is as long as the reply's HTTP header Inference-Header-Content-Length says, which the body alone does
    not have: it ends where its JSON object does. Raises ImageError or ServiceError where the body is an error.
    """
    try:
        header, length = json.JSONDecoder().raw_decode(reply.decode("latin-1"))  # one character a byte
    except json.JSONDecodeError as error:
        raise ServiceError(
            f"reply: expected JSON, then binary, got {len(reply)} bytes starting {reply[:8]!r}"
        ) from error
    if "error" in header:
        raise error_from_text(header["error"])
    return read_results(InferResult.from_response_body(reply, header_length=length))
