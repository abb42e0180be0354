"""The networks that are served: ResNet-50, and one that costs nothing, each with both hand-overs of `preprocess`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.networks import write_trivial
from benchmarks.running import export_repository, run_export

NETWORKS = ("trivial", "resnet50")
IN_GRAPH = "--normalize-in-graph"


@dataclass(frozen=True, kw_only=True)
class Network:
    """Hand-over `normalized` is float32; of `pixels`, uint8, the graph normalizes by itself."""

    name: str
    repositories: Mapping[str, Path]  # by hand-over
    labels: Path

    @property
    def model(self) -> Path:
        """The ONNX file that all others serve."""
        return self.repositories["normalized"] / self.name / "1" / "model.onnx"


def export_network(name: str, weights: str, folder: Path) -> Network:
    """Export into folders in `folder`; `weights` are for ResNet-50. Raises BenchmarkError."""
    plain, in_graph = folder / "normalized", folder / "pixels"
    plain.mkdir(parents=True)
    if name == "trivial":
        source = write_trivial(plain)
        normalized, pixels = run_export(plain, *source), run_export(in_graph, *source, IN_GRAPH)
    else:
        normalized = export_repository(name, weights, plain)
        pixels = export_repository(name, weights, in_graph, IN_GRAPH, "--name", f"{name}_pixels")
    repositories = {"normalized": normalized, "pixels": pixels}
    return Network(name=name, repositories=repositories, labels=plain / "labels.txt")
