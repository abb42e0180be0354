"""Client of the Triton ensemble `pipeline`: images in, ranked classes out."""

from .async_pipeline import AsyncPipelineClient
from .connection import Tls
from .errors import (
    AccessError,
    AnswerError,
    ClassificationError,
    ClosedError,
    DeadlineError,
    ImageError,
    ModelControlError,
    NotServedError,
    OverloadedError,
    ParameterError,
    ProcessDiedError,
    RefusedError,
    ServiceError,
    UnavailableError,
)
from .frames import FrameResult
from .images import Image
from .pipeline import PipelineClient
from .results import ClassScore, ImageResult

__all__ = [
    "AccessError",
    "AnswerError",
    "AsyncPipelineClient",
    "ClassScore",
    "ClassificationError",
    "ClosedError",
    "DeadlineError",
    "FrameResult",
    "Image",
    "ImageError",
    "ImageResult",
    "ModelControlError",
    "NotServedError",
    "OverloadedError",
    "ParameterError",
    "PipelineClient",
    "ProcessDiedError",
    "RefusedError",
    "ServiceError",
    "Tls",
    "UnavailableError",
]
