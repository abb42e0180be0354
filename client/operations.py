"""What is asked of Triton besides inference, in gRPC's form and in HTTP's; the reply is HTTP's JSON either way.

Numbers of 64 bits are text where they came over gRPC; what is empty is left out where it came over HTTP.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Operation:
    """`rpc` with the `fields` of its request over gRPC; `method`, `path` and a JSON `body` over HTTP.

    `reply_field` is the field of gRPC's reply that holds what HTTP replies; None where it is all of it.
    """

    rpc: str
    method: str
    path: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    reply_field: str | None = None


SERVER_METADATA = Operation("ServerMetadata", "GET", "/v2")
SERVER_READY = Operation("ServerReady", "GET", "/v2/health/ready")
STATISTICS = Operation("ModelStatistics", "GET", "/v2/models/stats")
REPOSITORY_INDEX = Operation("RepositoryIndex", "POST", "/v2/repository/index", body={}, reply_field="models")


def model_config(model: str) -> Operation:
    """The configuration of a model, as Triton completed it."""
    path = f"/v2/models/{quote(model, safe='')}/config"
    return Operation("ModelConfig", "GET", path, {"name": model}, reply_field="config")


def load_model(model: str) -> Operation:
    """Load a model, or load it again where its files have changed; an ensemble's steps are loaded too."""
    path = f"/v2/repository/models/{quote(model, safe='')}/load"
    return Operation("RepositoryModelLoad", "POST", path, {"model_name": model}, body={})


def unload_model(model: str) -> Operation:
    """Unload a model, and the ensembles of which it is a step; an ensemble's steps stay. Answered before it is done."""
    path = f"/v2/repository/models/{quote(model, safe='')}/unload"
    return Operation("RepositoryModelUnload", "POST", path, {"model_name": model}, body={})


def register_region(name: str, byte_size: int) -> Operation:
    """Have Triton map a region of system shared memory, of which the key is its name with a slash in front."""
    fields = {"key": f"/{name}", "offset": 0, "byte_size": byte_size}
    path = f"/v2/systemsharedmemory/region/{quote(name, safe='')}/register"
    return Operation("SystemSharedMemoryRegister", "POST", path, {"name": name, **fields}, body=fields)


def unregister_region(name: str) -> Operation:
    """Have Triton let go of it."""
    path = f"/v2/systemsharedmemory/region/{quote(name, safe='')}/unregister"
    return Operation("SystemSharedMemoryUnregister", "POST", path, {"name": name}, body={})
