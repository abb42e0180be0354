"""What can go wrong with a classification. This is the only place that reads an error's text.

ClassificationError
├── RefusedError            asking again with the same would fail again
│   ├── ImageError              the image: `not_an_image`, `truncated`, `too_many_pixels`, ...
│   └── ParameterError          `top_k` or `threshold`
├── ServiceError            the server, or the way to it, failed
│   ├── UnavailableError        not reached, connection lost, models still loading; may be retried
│   ├── OverloadedError         its queues are full; may be retried
│   ├── ProcessDiedError        a Python process behind the server died; may be retried
│   ├── RegionLostError         the server forgot a region of shared memory; may be retried
│   ├── DeadlineError           no answer in time
│   ├── AccessError             certificate, key or permission refused
│   ├── ModelControlError       the server was started without explicit control of its models
│   ├── NotServedError          the server has no such model, or is no Triton
│   └── AnswerError             the answer is not what `pipeline` answers
└── ClosedError             the client was closed before
"""

import re

# `step: code: what was expected and what arrived`; Triton puts `in ensemble 'pipeline', ` in front for some requests.
# An image's row in its request, `image 3: `, is left out: the caller's list is another.
_CONTRACT = re.compile(
    r"(?:in ensemble '[^']*', )?(?P<step>[a-z_]+): (?P<code>[a-z_]+): (?:image \d+: )?(?P<detail>.*)", re.DOTALL
)


class ClassificationError(Exception):
    """The base of everything that the client raises, but for ValueError where it is called wrongly.

    `code` is a word for programs: the contract's (README.md) for what the pipeline refused, else the class's own.
    """

    code = "failed"


class RefusedError(ClassificationError):
    """The pipeline refused the image or a parameter: asking again with the same would fail again.

    `step` and `code` are the contract (`preprocess`, `not_an_image`); `detail` says what was expected and what arrived.
    What the client refuses by itself bears the step `client`.
    """

    def __init__(self, step: str, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.step, self.code, self.detail = step, code, detail


class ImageError(RefusedError):
    """The image was refused."""


class ParameterError(RefusedError):
    """`top_k` or `threshold` was refused."""


class ServiceError(ClassificationError):
    """The server could not be reached, did not answer in time, or failed by itself."""

    code = "service"
    may_be_retried = False


class UnavailableError(ServiceError):
    """The server was not reached, the connection was lost, or the models are being loaded."""

    code = "unavailable"
    may_be_retried = True


class OverloadedError(ServiceError):
    """The server's queues are full."""

    code = "overloaded"
    may_be_retried = True


class ProcessDiedError(ServiceError):
    """A Python process behind the server died; its neighbours may answer."""

    code = "process_died"
    may_be_retried = True


class RegionLostError(ServiceError):
    """The server does not know a region of shared memory, as after its restart; the client makes another."""

    code = "region_lost"
    may_be_retried = True


class DeadlineError(ServiceError):
    """No answer within `timeout_s`."""

    code = "deadline"


class AccessError(ServiceError):
    """A certificate, a key or a permission was refused, on either side."""

    code = "access"


class ModelControlError(ServiceError):
    """The server loads and unloads no models when asked: it was started without --model-control-mode=explicit."""

    code = "model_control"


class NotServedError(ServiceError):
    """The server has no such model, or is no Triton."""

    code = "not_served"


class AnswerError(ServiceError):
    """The answer is not what `pipeline` answers."""

    code = "answer"


_SERVICE_ERRORS: list[type[ServiceError]] = [ServiceError, *ServiceError.__subclasses__()]
SERVICE_CODES = frozenset(kind.code for kind in _SERVICE_ERRORS)


class ClosedError(ClassificationError):
    """The client was closed before."""

    code = "closed"


# What Triton and the transports say, where a status alone does not tell; the first that is found counts.
_TEXTS: list[tuple[str, type[ServiceError]]] = [
    (r"Stub process .* is not healthy", ProcessDiedError),
    # Tensors for the Python processes found no room: for large requests at the same time, or an overfull /dev/shm.
    (r"Failed to increase the shared memory pool size", OverloadedError),
    (r"Unable to find (?:system )?shared memory region", RegionLostError),
    (r"protocol is restricted|API is restricted", AccessError),
    (r"explicit model load / unload is not allowed", ModelControlError),
    (r"CERTIFICATE|certificate|WRONG_VERSION_NUMBER|ALERT|Hostname (mismatch|Verification)", AccessError),
    (r"[Ee]xceeds maximum queue size|[Rr]equest timeout expired|queue is full|: overloaded: ", OverloadedError),
    (r"has no available versions|is not ready|Server is stopping|[Ss]erver exiting", UnavailableError),
    (r"unknown model", NotServedError),
    (r"message larger than max", ServiceError),  # gRPC says RESOURCE_EXHAUSTED, but will take it no other time
    (r"Exception deserializing response", AnswerError),  # gRPC's, where the bytes are no message of Triton's
]


def error_from_text(text: str) -> ClassificationError:
    """Read a row of the output `error`, or the message of a failed request.

    >>> error_from_text("preprocess: empty: image 0: expected an image file, got 0 bytes").code
    'empty'
    >>> error_from_text("in ensemble 'pipeline', Stub process 'preprocess_0_1' is not healthy.")
    ProcessDiedError("in ensemble 'pipeline', Stub process 'preprocess_0_1' is not healthy.")
    """
    return refused_error(text) or service_kind(text)(text)


def refused_error(text: str) -> RefusedError | None:
    """What the pipeline refused; None where `text` tells of something else."""
    match = _CONTRACT.fullmatch(text)
    if match is None or match["code"] in ("internal", "overloaded"):  # not the caller's fault
        return None
    kind = ParameterError if match["code"] == "invalid_parameter" else ImageError
    return kind(match["step"], match["code"], match["detail"])


def service_kind(text: str, otherwise: type[ServiceError] = ServiceError) -> type[ServiceError]:
    """The kind of failure that `text` tells of, else `otherwise`."""
    return next((kind for pattern, kind in _TEXTS if re.search(pattern, text)), otherwise)
