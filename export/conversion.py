"""What is made of a checked float32 graph; how, is in precision.py."""

from dataclasses import dataclass
from pathlib import Path

PRECISIONS = ("fp32", "fp16", "int8")
# Of 62 held-out photographs a sound int8 ResNet-50 differs on one or two, whose two best classes are all but equal; a
# network that 8 bits do not suit, or a calibration with other images than are served, differs on far more than three.
MIN_AGREEMENT = 0.95


# From the outputs of what the graph was made from, relative to the largest. fp16 has 11 significant bits, which give
# 1e-3 of the largest logit; weights that overflow err by far more. Activations that overflow on a GPU do not show: CPUs
# compute in float32. Of int8 the agreement on real images is the judge: random pixels are far from those.
MAX_DIFFERENCES = {"fp32": 1e-4, "fp16": 2e-2, "int8": float("inf")}
CURES = {
    "fp32": ": leave --normalize-in-graph away",
    "fp16": ": its values do not fit fp16; take fp32 or int8",
    "int8": ": some are not finite; take fp32, or calibrate with other images",
}


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """Precision and place of the normalization; the default is the float32 graph as it is."""

    precision: str = "fp32"
    calibration: Path | None = None  # a folder of images, for int8
    min_agreement: float = MIN_AGREEMENT  # share of held-out images with fp32's decision, below which int8 is refused
    normalize_in_graph: bool = False

    def __str__(self) -> str:
        """As on the command line."""
        return f"--precision {self.precision}{' --normalize-in-graph' * self.normalize_in_graph}"
