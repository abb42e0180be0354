"""What to do about an error of an administrative command."""

from ..errors import AccessError, ClassificationError, ModelControlError

GRPC_KEY = "--header triton-grpc-protocol-triton-admin-key=KEY"
HTTP_KEY = (
    "--header triton-admin-key=KEY; over gRPC none is needed on the server's own machine, where it listens to that only"
)


def key_hint(url: str) -> str:
    """How to give the key for what a server restricts."""
    return GRPC_KEY if url.startswith("grpc") else HTTP_KEY


def with_hint(error: ClassificationError, url: str) -> str:
    """The text of an error, and what to do about it where that is known."""
    if isinstance(error, AccessError):
        return f"{error}\ngive the key: {key_hint(url)}"
    if isinstance(error, ModelControlError):
        return f"{error}\nstart the server with --model-control-mode=explicit, as python -m server does"
    return str(error)
