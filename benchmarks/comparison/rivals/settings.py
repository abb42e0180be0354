"""What a server is told by its environment, because uvicorn and BentoML import the module themselves."""

import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

PREFIX = "COMPARISON_"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All values are text, as in an environment."""

    port: str
    model: str  # the ONNX file
    labels: str  # one name a line
    transform: str  # of transforms.TRANSFORMS
    workers: str  # processes, one a core
    threads: str  # of ONNX Runtime, in each worker
    triton_address: str  # HOST:PORT, gRPC: of the Triton behind a gateway
    triton_model: str

    def environment(self) -> dict[str, str]:
        """The whole environment of a process that shall have these settings."""
        return {**os.environ, **{PREFIX + name.upper(): value for name, value in asdict(self).items()}}

    def read_labels(self) -> list[str]:
        return Path(self.labels).read_text("utf-8").splitlines()


def read_settings() -> Settings:
    return Settings(**{field.name: os.environ[PREFIX + field.name.upper()] for field in fields(Settings)})
