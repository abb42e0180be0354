"""What a rule reports."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One fault: where it is, and what was expected, what stands there, and the cure."""

    file: Path
    field: str  # as in config.pbtxt
    message: str  # "expected ..., got ...: cure"

    def __str__(self) -> str:
        return f"{self.file}: {self.field}: {self.message}"
