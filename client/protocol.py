"""Requests and answers as both protocols carry them, without any network.

Source: the predict protocol's extension for binary tensors, github.com/triton-inference-server/server,
docs/protocol/extension_binary_data.md, and the extension for shared memory beside it.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.utils import deserialize_bytes_tensor

from .errors import AnswerError, ParameterError, error_from_text
from .images import Item, batch_data
from .results import OUTPUTS

HEADER_LENGTH = "Inference-Header-Content-Length"
TIMEOUT = "timeout"  # of a request in the server's queue; Triton reads it, the models do not see it
_DTYPES = {"INT32": np.dtype(np.int32), "FP32": np.dtype(np.float32)}
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Request:
    """One request to an ensemble: its only input, as bytes, or in a `region` of shared memory where there is one."""

    model: str
    tensor: str
    shape: Sequence[int]
    data: bytes
    parameters: Mapping[str, int | float] = field(default_factory=dict)
    region: str | None = None

    def http_body(self, timeout_s: float) -> tuple[bytes, int]:
        """The body, a JSON header and the bytes behind it, and the header's length.

        What has waited in the server's queue for `timeout_s` is not executed; over gRPC too.
        """
        place: dict[str, Any] = {"binary_data_size": len(self.data)}
        if self.region:
            place = {"shared_memory_region": self.region, "shared_memory_byte_size": len(self.data)}
        shape = {"name": self.tensor, "shape": list(self.shape), "datatype": "UINT8"}
        header = json.dumps(
            {
                "inputs": [{**shape, "parameters": place}],
                "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in OUTPUTS],
                "parameters": {**self.parameters, TIMEOUT: timeout_us(timeout_s)},
            }
        ).encode()
        return header if self.region else header + self.data, len(header)

    def grpc_message(self, timeout_s: float | None = None) -> Any:
        """The ModelInferRequest."""
        from tritonclient.grpc.service_pb2 import ModelInferRequest  # heavy, and for gRPC only

        message = ModelInferRequest(model_name=self.model)
        tensor = message.inputs.add(name=self.tensor, datatype="UINT8", shape=self.shape)
        if self.region:
            tensor.parameters["shared_memory_region"].string_param = self.region
            tensor.parameters["shared_memory_byte_size"].int64_param = len(self.data)
        else:
            message.raw_input_contents.append(self.data)
        for name in OUTPUTS:
            message.outputs.add(name=name)
        for name, value in self.parameters.items():
            if isinstance(value, int):
                message.parameters[name].int64_param = value
            else:
                message.parameters[name].double_param = value
        if timeout_s is not None:
            message.parameters[TIMEOUT].int64_param = timeout_us(timeout_s)
        return message


def timeout_us(timeout_s: float) -> int:
    """As Triton counts it; at least 1, for 0 would be no timeout."""
    return max(1, int(timeout_s * 1e6))


def make_request(items: Sequence[Item], top_k: int | None, threshold: float | None) -> Request:
    """One request for a batch; `top_k` and `threshold` are the pipeline's defaults where None.

    Raises ParameterError where no request can hold one of them.
    """
    shape, data = batch_data(items)
    return Request(items[0].model, items[0].tensor, shape, data, make_parameters(top_k, threshold))


def make_parameters(top_k: int | None, threshold: float | None) -> dict[str, int | float]:
    """The parameters of a request; raises ParameterError where none can hold one of them."""
    parameters: dict[str, int | float] = {}
    if top_k is not None:
        if isinstance(top_k, bool) or not isinstance(top_k, int | np.integer) or int(top_k) not in _INT64:
            raise ParameterError("client", "invalid_parameter", f"top_k: expected an int of 64 bits, got {top_k!r}")
        parameters["top_k"] = int(top_k)
    if threshold is not None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.number) or math.isnan(threshold):
            raise ParameterError("client", "invalid_parameter", f"threshold: expected a number, got {threshold!r}")
        parameters["threshold"] = float(threshold)
    return parameters


def outputs_of_message(message: Any) -> dict[str, npt.NDArray[Any]]:
    """The outputs of a ModelInferResponse; AnswerError where they are not whole."""
    if len(message.outputs) != len(message.raw_output_contents):
        raise AnswerError(
            f"answer: expected the bytes of {len(message.outputs)} outputs, got {len(message.raw_output_contents)}"
        )
    return {
        output.name: _read_tensor(output.name, output.datatype, output.shape, data)
        for output, data in zip(message.outputs, message.raw_output_contents, strict=True)
    }


def outputs_of_body(body: bytes, header_length: int | None = None) -> dict[str, npt.NDArray[Any]]:
    """The outputs of an HTTP reply: a JSON object, then each output's bytes.

    `header_length` is what the reply's header Inference-Header-Content-Length says; where it is not known, the JSON
    ends where its object does. Raises RefusedError or ServiceError where the body is an error, AnswerError where it is
    no whole reply.
    """
    header, start = _read_header(body, header_length)
    if "error" in header:
        raise error_from_text(str(header["error"]))
    try:
        sizes = [int(output["parameters"]["binary_data_size"]) for output in header["outputs"]]
        described = [(str(output["name"]), output["datatype"], output["shape"]) for output in header["outputs"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise AnswerError(f"reply: expected a JSON object with outputs in binary, got {_start(body)}") from error
    if min(sizes, default=0) < 0 or len(body) != start + sum(sizes):
        raise AnswerError(f"reply: expected {start} bytes of JSON and {sum(sizes)} of outputs, got {len(body)} in all")
    outputs = {}
    for (name, datatype, shape), size in zip(described, sizes, strict=True):
        outputs[name] = _read_tensor(name, datatype, shape, body[start : start + size])
        start += size
    return outputs


def _read_header(body: bytes, length: int | None) -> tuple[dict[str, Any], int]:
    text = body[:length].decode("latin-1")  # one character a byte
    try:
        header, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"reply: expected JSON, then binary, got {_start(body)}") from error
    if not isinstance(header, dict):
        raise AnswerError(f"reply: expected a JSON object with outputs, got {_start(body)}")
    return header, end if length is None else length


def _read_tensor(name: str, datatype: str, shape: Sequence[int], data: bytes) -> npt.NDArray[Any]:
    try:
        if datatype == "BYTES":
            return deserialize_bytes_tensor(data).reshape(shape)  # type: ignore[no-any-return]
        return np.frombuffer(data, _DTYPES[datatype]).reshape(shape)
    except (KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise AnswerError(f"answer: expected {name} {datatype} {list(shape)}, got {len(data)} bytes") from error


def _start(reply: bytes) -> str:
    return f"{len(reply)} bytes starting {reply[:8]!r}"
