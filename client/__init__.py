"""Client of the Triton ensemble `pipeline`: image files in, ranked classes out."""

from .errors import ClassificationError, ImageError, ServiceError
from .pipeline import PipelineClient
from .results import ClassScore, ImageResult

__all__ = ["ClassScore", "ClassificationError", "ImageError", "ImageResult", "PipelineClient", "ServiceError"]
