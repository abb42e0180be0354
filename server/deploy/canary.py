"""The canary: the classifier's next version as a model of its own, and an ensemble `pipeline_canary` pinned to it.

No request to `pipeline` sees it. The folders stay in the repository, so that a restart serves it again.
"""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.repository import refresh_variants

from .folders import install, remove
from .layout import CANARY_SERVICE, SERVICE, Layout

VERSION_FILES = ("model.onnx", "manifest.json")


def write_canary(layout: Layout, number: int, source: Path) -> None:
    """Put both models in place, the classifier first, since the ensemble would not load without it."""
    configs = {
        str(path.relative_to(layout.folder)): renamed(path, layout.canary)
        for path in [layout.folder / "config.pbtxt", *sorted(layout.folder.glob("configs/*.pbtxt"))]
    }
    install(layout.canary_folder, layout.folder, {**configs, **version_files(source, f"{number}/")})
    refresh_variants(layout.canary_folder)  # those that belong to one network
    install(
        layout.canary_service_folder,
        layout.folder,
        {"config.pbtxt": canary_service(layout, number)},
        empty_folders=[str(number)],  # Triton wants one, and names it as the version in each answer
    )


def remove_canary(layout: Layout) -> None:
    """The ensemble first, for the same reason; does nothing where there is none."""
    for folder in (layout.canary_service_folder, layout.canary_folder):
        remove(folder, layout.folder)


def version_files(source: Path, prefix: str = "") -> dict[str, bytes | Path]:
    """What a version folder holds, and where it is copied from."""
    return {f"{prefix}{name}": source / name for name in VERSION_FILES}


def renamed(path: Path, name: str) -> bytes:
    """A configuration with another name of its model."""
    config = text_format.Parse(path.read_text("utf-8"), ModelConfig())
    config.name = name
    return bytes(text_format.MessageToString(config), "utf-8")


def canary_service(layout: Layout, number: int) -> bytes:
    """The configuration of `pipeline` with the canary as its classifier, pinned to its version."""
    config = text_format.Parse((layout.repository / SERVICE / "config.pbtxt").read_text("utf-8"), ModelConfig())
    config.name = CANARY_SERVICE
    for step in config.ensemble_scheduling.step:
        if step.model_name == layout.classifier:
            step.model_name, step.model_version = layout.canary, number
    return bytes(text_format.MessageToString(config), "utf-8")
