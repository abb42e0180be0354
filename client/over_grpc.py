"""The two transports over gRPC: one that blocks, one for asyncio."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import numpy.typing as npt
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from .connection import Connection
from .deadline import Deadline
from .errors import (
    AccessError,
    AnswerError,
    ClassificationError,
    NotServedError,
    OverloadedError,
    ServiceError,
    UnavailableError,
)
from .operations import Operation
from .protocol import Request, outputs_of_message

_KINDS: dict[grpc.StatusCode, type[ServiceError]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,  # by the server, or by the end of the connection
    grpc.StatusCode.UNKNOWN: UnavailableError,  # the connection ended in the middle of an answer
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.UNAUTHENTICATED: AccessError,
    grpc.StatusCode.PERMISSION_DENIED: AccessError,
    grpc.StatusCode.NOT_FOUND: NotServedError,
    grpc.StatusCode.UNIMPLEMENTED: NotServedError,
}
_COMPRESSION = {
    None: grpc.Compression.NoCompression,
    "gzip": grpc.Compression.Gzip,
    "deflate": grpc.Compression.Deflate,
}


class GrpcTransport:
    """A channel to the server, for any number of threads. Its methods raise ClassificationError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel = open_channel(grpc, connection)
        self.stub = GRPCInferenceServiceStub(self._channel)

    def infer(self, request: Request, deadline: Deadline) -> dict[str, npt.NDArray[Any]]:
        return outputs_of_message(self._call("ModelInfer", request.grpc_message(deadline.left_s()), deadline))

    def control(self, operation: Operation, deadline: Deadline) -> Any:
        return read_reply(operation, self._call(operation.rpc, make_message(operation), deadline))

    def _call(self, rpc: str, message: Any, deadline: Deadline) -> Any:
        try:
            return getattr(self.stub, rpc)(message, **call_options(self._connection, deadline.left_s()))
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            raise translate(error, self._connection, deadline) from error

    def close(self) -> None:
        """Close the channel; calls in flight end with an error."""
        self._channel.close()


class AsyncGrpcTransport:
    """The same for asyncio. A task that is cancelled cancels its call, on the server too."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel = open_channel(grpc.aio, connection)
        self.stub = GRPCInferenceServiceStub(self._channel)

    async def infer(self, request: Request, deadline: Deadline) -> dict[str, npt.NDArray[Any]]:
        return outputs_of_message(await self._call("ModelInfer", request.grpc_message(deadline.left_s()), deadline))

    async def control(self, operation: Operation, deadline: Deadline) -> Any:
        return read_reply(operation, await self._call(operation.rpc, make_message(operation), deadline))

    async def _call(self, rpc: str, message: Any, deadline: Deadline) -> Any:
        try:
            reply = await getattr(self.stub, rpc)(message, **call_options(self._connection, deadline.left_s()))
        except (grpc.RpcError, grpc.aio.UsageError) as error:  # UsageError: the channel is closed
            raise translate(error, self._connection, deadline) from error
        except asyncio.CancelledError as error:  # raised too where the server or the channel's end cancels the call
            if is_being_cancelled():
                raise
            raise self._connection.failure("CANCELLED", UnavailableError) from error
        if reply is None:
            raise self._connection.failure("a message that is none of Triton's", AnswerError)
        return reply

    async def close(self) -> None:
        """Close the channel; calls in flight are cancelled."""
        await self._channel.close()


def is_being_cancelled() -> bool:
    """Whether the task that runs has been cancelled by its owner."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def open_channel(module: Any, connection: Connection) -> Any:
    """A channel of the module `grpc` or `grpc.aio`."""
    if connection.is_secure:
        credentials = connection.channel_credentials()
        return module.secure_channel(connection.address, credentials, options=connection.channel_options())
    return module.insecure_channel(connection.address, options=connection.channel_options())


def call_options(connection: Connection, timeout_s: float | None) -> dict[str, Any]:
    """What goes along with each call; gRPC tells the server the deadline, and cancels the call there too."""
    compression = _COMPRESSION[connection.compression]
    return {"timeout": timeout_s, "metadata": connection.metadata(), "compression": compression}


def make_message(operation: Operation) -> Any:
    return getattr(service_pb2, f"{operation.rpc}Request")(**operation.fields)


def read_reply(operation: Operation, reply: Any) -> Any:
    values = MessageToDict(reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return values if operation.reply_field is None else values[operation.reply_field]


def translate(error: Exception, connection: Connection, deadline: Deadline) -> ClassificationError:
    """What gRPC raises, in the client's own terms."""
    if not isinstance(error, grpc.RpcError):
        return connection.closed()
    code, details = error.code(), error.details() or ""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return deadline.error()
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL):
        return connection.error_from_text(details or code.name)
    return connection.failure(details or code.name, _KINDS.get(code, ServiceError))
