"""What the onnxruntime backend accepts: the rules of its stand-in, whose folder is Triton's and no package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "backends" / "onnxruntime"))
from graph_rules import (
    CUDA_PARAMETERS,
    PARAMETERS,
    ConfigError,
    GraphTensor,
    SessionSettings,
    check_config,
    execution_accelerators,
)

__all__ = [
    "CUDA_PARAMETERS",
    "PARAMETERS",
    "ConfigError",
    "GraphTensor",
    "SessionSettings",
    "check_config",
    "execution_accelerators",
]
