"""Requests by tritonclient itself, so that the project's own client is not what is trusted."""

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.grpc
import tritonclient.http

from server.options import ServerOptions
from server.process import TritonServer

PROTOCOLS: dict[str, ModuleType] = {"grpc": tritonclient.grpc, "http": tritonclient.http}


def connect(server: TritonServer, protocol: str) -> Any:
    return connect_to(server.options, protocol)


def connect_to(options: ServerOptions, protocol: str) -> Any:
    port = options.grpc_port if protocol == "grpc" else options.http_port
    return PROTOCOLS[protocol].InferenceServerClient(f"127.0.0.1:{port}")


def tensor(protocol: str, name: str, value: npt.NDArray[Any], data_type: str = "UINT8") -> Any:
    result = PROTOCOLS[protocol].InferInput(name, list(value.shape), data_type)
    result.set_data_from_numpy(value)
    return result


def ask(server: TritonServer, protocol: str, files: list[bytes], **parameters: float) -> dict[str, npt.NDArray[Any]]:
    """Send one batch of files to `pipeline`, zero-padded to the longest; returns the outputs by name."""
    return ask_model(server, protocol, "pipeline", "raw_image", padded(files), **parameters)


def ask_model(
    server: TritonServer, protocol: str, model: str, name: str, value: npt.NDArray[np.uint8], **parameters: float
) -> dict[str, npt.NDArray[Any]]:
    client = connect(server, protocol)
    try:
        answer = client.infer(model, [tensor(protocol, name, value)], parameters=parameters)
        return {output: answer.as_numpy(output) for output in ("class_id", "score", "label", "error")}
    finally:
        client.close()


def padded(files: list[bytes]) -> npt.NDArray[np.uint8]:
    longest = max(map(len, files))
    return np.stack([np.frombuffer(file.ljust(longest, b"\0"), np.uint8) for file in files])
