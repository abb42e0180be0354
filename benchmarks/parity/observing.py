"""The three that are asked about each file: the running service, Pillow, and torch."""

import errno
import io
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import tritonclient.grpc as triton
from PIL import Image
from tritonclient.utils import InferenceServerException

from benchmarks.errors import BenchmarkError
from benchmarks.reference import reference_crop, reference_normalized, reference_pixels, resized_size
from client import ClassificationError, ImageError, PipelineClient
from client.errors import error_from_text
from export.recipes import Transform
from server.process import TritonServer

from .comparison import Reference, Refusal, ScoredClass, Served

TIMEOUT_S = 120  # for each request; the largest image that is taken decodes in seconds
MAX_FILE_BYTES = 1 << 30  # of a file that is looked at; a gRPC message ends at 2 GB
MAX_RESIZED_PIXELS = (
    100_000_000  # the reference resizes the whole image; that of 1 x 60000 would have 4 thousand million
)
UNKNOWN_FORMAT = "unknown"


class Service:
    """The server's `preprocess` and `pipeline`, over gRPC; closed on the way out of a `with`."""

    def __init__(self, server: TritonServer) -> None:
        self._server = server
        address = f"{server.options.client_host}:{server.options.grpc_port}"
        self._pipeline = PipelineClient(f"grpc://{address}", timeout_s=TIMEOUT_S)
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self._preprocess = triton.InferenceServerClient(
            address, channel_args=[*unlimited, ("grpc.enable_http_proxy", 0)]
        )

    def __enter__(self) -> "Service":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipeline.close()
        self._preprocess.close()

    def look_at(self, file: bytes) -> Served:
        """Ask both models about one file; raise BenchmarkError where the server has ended."""
        normalized = None
        try:
            normalized = self._normalized(file)
            best = self._pipeline.classify(file, top_k=1).classes[0]
        except ClassificationError as error:
            if self._server.process.poll() is not None:
                raise BenchmarkError(
                    f"Triton ended with status {self._server.exit_status}, its log is {self._server.options.log}"
                ) from error
            return Served(normalized=normalized, refusal=refusal_of(error))
        return Served(normalized=normalized, best=ScoredClass(best.class_id, best.score))

    def _normalized(self, file: bytes) -> npt.NDArray[np.float32]:
        """The output of `preprocess`, (3, H, W)."""
        raw_image = triton.InferInput("raw_image", [1, len(file)], "UINT8")
        raw_image.set_data_from_numpy(np.frombuffer(file, np.uint8)[np.newaxis])
        outputs = [triton.InferRequestedOutput("normalized")]
        try:
            answer: Any = self._preprocess.infer("preprocess", [raw_image], outputs=outputs, client_timeout=TIMEOUT_S)
        except InferenceServerException as error:
            raise error_from_text(error.message()) from error
        normalized: npt.NDArray[np.float32] = answer.as_numpy("normalized")[0]
        return normalized


def refusal_of(error: ClassificationError) -> Refusal:
    if isinstance(error, ImageError):
        return Refusal(error.step, error.code, str(error))
    return Refusal("", "service", str(error))


def look_at_reference(file: bytes, transform: Transform) -> Reference:
    """Read, resize, crop and normalize one file by Pillow and numpy, or say why not."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of Pillow, about damaged metadata and large images: they would fill the screen
        name, size = identify(file)
        try:
            image = reference_pixels(file)
        except Exception as error:  # on damaged files Pillow raises OSError, SyntaxError, struct.error and others
            return Reference(format=name, size=size, error=_told(error))
        width, height = resized_size(image.size, transform.resize_size)
        if width * height > MAX_RESIZED_PIXELS:
            return Reference(
                format=name,
                size=size,
                not_compared=f"expected at most {MAX_RESIZED_PIXELS} pixels once resized, got {width} x {height}",
            )
        crop = reference_crop(
            image,
            resize_size=transform.resize_size,
            crop_size=transform.crop_size,
            interpolation=transform.interpolation,
        )
    return Reference(format=name, size=size, normalized=reference_normalized(crop, transform.mean, transform.std))


def identify(file: bytes) -> tuple[str, str]:
    """Pillow's name of the format and the size as in the header, "640x427"; "unknown" and "" where it has none."""
    try:
        with Image.open(io.BytesIO(file)) as image:
            return image.format or UNKNOWN_FORMAT, f"{image.width}x{image.height}"
    except Exception:  # as above
        return UNKNOWN_FORMAT, ""


def _told(error: Exception) -> str:
    """An exception in one line, without the address that ends some of Pillow's messages."""
    return f"{type(error).__name__}: {error}".partition(" <_io.BytesIO object")[0].replace("\n", " ")


def read_file(path: Path) -> bytes:
    """Raise OSError where a file cannot be read, or is longer than can be sent."""
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"expected at most {MAX_FILE_BYTES} bytes, got {size}", path)
    return path.read_bytes()


def torch_scores(network: torch.nn.Module, inputs: list[npt.NDArray[np.floating[Any]]]) -> npt.NDArray[np.float32]:
    """Softmax of the network's logits: inputs of (3, H, W) each to (N, classes)."""
    with torch.inference_mode():
        logits: torch.Tensor = network(torch.from_numpy(np.stack(inputs)).float())
        return logits.softmax(dim=1).numpy()
