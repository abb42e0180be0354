"""The reply to a plain HTTP upload (curl --data-binary): a JSON header, then the outputs as binary."""

from .protocol import outputs_of_body
from .results import ImageResult, read_results


def decode_reply(reply: bytes) -> list[ImageResult]:
    """Read the body that Triton sends back for `Inference-Header-Content-Length: 0`, one result an image.

    Raises RefusedError or ServiceError where the body is an error, AnswerError where it is no whole reply.
    """
    return read_results(outputs_of_body(reply))
