"""What an export leaves in a folder: model.onnx, labels.txt, manifest.json."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch

from .conversion import Conversion
from .files import EXPORTED_FILES, writable
from .labels import imagenet_labels, random_labels
from .precision import convert
from .pretrained import sha256
from .recipes import Recipe
from .to_onnx import CHECKED_BATCHES, measure_difference, write_onnx
from .weights import LoadedNetwork, load_network


def export_model(recipe: Recipe, weights: str, seed: int, folder: Path, conversion: Conversion) -> dict[str, Any]:
    """Export into `folder`, all three files or none, and return the manifest."""
    network = load_network(recipe, weights, seed)
    with writable(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as name:
        new = Path(name)
        write_onnx(network.module, recipe.transform.crop_size, new / "model.onnx")
        difference = measure_difference(network.module, recipe.transform.crop_size, new / "model.onnx")
        converted = convert(new / "model.onnx", recipe.transform, conversion)
        labels = random_labels(recipe.classes) if network.is_random else imagenet_labels()
        (new / "labels.txt").write_text("".join(f"{label}\n" for label in labels), "utf-8")
        manifest = describe(recipe, network, new / "model.onnx", difference) | {"conversion": converted}
        (new / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
        for file in EXPORTED_FILES:
            (new / file).replace(folder / file)
    return manifest


def describe(recipe: Recipe, network: LoadedNetwork, path: Path, difference: float) -> dict[str, Any]:
    """The manifest: from what, with what and how exactly the ONNX file was made."""
    model = onnx.load(path)
    return {
        "recipe": recipe.name,
        "weights": {"source": network.source, "sha256": network.sha256},
        "transform": asdict(recipe.transform),
        "onnx": {
            "sha256": sha256(path),
            "opset": model.opset_import[0].version,
            "ir_version": model.ir_version,
            "input": describe_tensor(model.graph.input[0]),
            "output": describe_tensor(model.graph.output[0]),
        },
        "largest_relative_difference_from_torch": difference,
        "checked_batches": CHECKED_BATCHES,
        "versions": {
            "torch": torch.__version__,
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
    }


def describe_tensor(value: onnx.ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    dims = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
    return {"name": value.name, "data_type": onnx.TensorProto.DataType.Name(tensor.elem_type), "dims": dims}
