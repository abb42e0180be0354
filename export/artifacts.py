"""What an export leaves in a folder: model.onnx, labels.txt, manifest.json."""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch

from .classifier import Classifier, check_is_not_tracked, to_manifest
from .conversion import CURES, MAX_DIFFERENCES, Conversion
from .errors import ExportError
from .files import EXPORTED_FILES, writable
from .precision import convert
from .pretrained import sha256
from .sources import Source
from .to_onnx import CHECKED_BATCHES, Tolerance, check_activation, measure_difference, opset_of, sample_images


def export_classifier(
    source: Source, name: str, activation: str, folder: Path, conversion: Conversion
) -> dict[str, Any]:
    """Export into `folder`, all three files or none, and return the manifest."""
    with writable(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as new_folder:
        new = Path(new_folder)
        changes = source.write(new / "model.onnx")
        classifier = describe_classifier(source, name, activation, conversion, new / "model.onnx")
        measure_difference(source.run, source.transform, new / "model.onnx", source.tolerance)
        check_activation(activation, source.run(sample_images(source.transform, batch=2)))
        converted = convert(new / "model.onnx", source.transform, activation, conversion)
        difference = measure_converted(source, new / "model.onnx", conversion)
        (new / "labels.txt").write_text("".join(f"{label}\n" for label in source.labels), "utf-8")
        manifest = {
            "made_from": source.made_from,
            "weights": source.weights,
            **to_manifest(classifier),
            "added_to_the_graph": changes,
            "conversion": converted,
            "onnx": describe_graph(new / "model.onnx", classifier),
            "largest_relative_difference": difference,
            "checked_batches": CHECKED_BATCHES,
            "versions": {library.__name__: library.__version__ for library in (torch, onnx, onnxruntime)},
        }
        (new / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
        for file in EXPORTED_FILES:
            (new / file).replace(folder / file)
    return manifest


def measure_converted(source: Source, path: Path, conversion: Conversion) -> float:
    """How far the file that is written is from its source, to two digits: the others depend on the machine."""
    precision = conversion.precision
    tolerance = Tolerance(most=max(MAX_DIFFERENCES[precision], source.tolerance.most), cure=CURES[precision])
    return float(f"{measure_difference(source.run, source.transform, path, tolerance):.1e}")


def describe_classifier(source: Source, name: str, activation: str, conversion: Conversion, path: Path) -> Classifier:
    """Take the names of tensors and the classes from the written graph.

    Raises ExportError where the labels are not as many as the classes, or the name is that of the tracked classifier.
    """
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (graph_input,), (output,) = session.get_inputs(), session.get_outputs()
    classes = output.shape[1]
    if len(source.labels) != classes:
        raise ExportError(
            f"--labels: expected {classes} lines, one for each class that the network scores, got {len(source.labels)}"
        )
    classifier = Classifier(
        name=name,
        transform=source.transform,
        activation=activation,
        classes=classes,
        input_name=graph_input.name,
        output_name=output.name,
        takes_pixels=conversion.normalize_in_graph,
    )
    check_is_not_tracked(classifier)
    return classifier


def describe_graph(path: Path, classifier: Classifier) -> dict[str, Any]:
    model = onnx.load(path)
    return {
        "sha256": sha256(path),
        "opset": opset_of(model),
        "ir_version": model.ir_version,
        "input": describe_tensor(model.graph.input, classifier.input_name),
        "output": describe_tensor(model.graph.output, classifier.output_name),
    }


def describe_tensor(values: Iterable[onnx.ValueInfoProto], name: str) -> dict[str, Any]:
    tensor = next(value for value in values if value.name == name).type.tensor_type
    dims = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
    return {"name": name, "data_type": onnx.TensorProto.DataType.Name(tensor.elem_type), "dims": dims}
