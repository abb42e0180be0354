"""What a classifier can be made from: a recipe, or the user's own ONNX file, TorchScript file or Python function."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from .choosing import TRANSFORM_FIELDS, choose_transform
from .labels import imagenet_labels, random_labels, read_labels
from .own_graph import fit, read_graph
from .own_torch import load_factory, load_torchscript
from .pretrained import sha256
from .recipes import RECIPES, Transform
from .to_onnx import OF_FLOAT32, Network, Tolerance, run_torch, write_onnx
from .weights import LoadedNetwork, load_network


@dataclass(frozen=True, kw_only=True)
class Source:
    """A network that can be written as ONNX, with what belongs to its weights."""

    made_from: dict[str, str]  # for the manifest: {"recipe": "resnet50"}, {"onnx": "pets.onnx"} ...
    weights: dict[str, str | None]  # for the manifest: where they are from, and their file's sha256
    transform: Transform
    labels: list[str]
    write: Callable[[Path], list[str]]  # writes the ONNX file; says what was added to the user's graph
    run: Network  # the network itself, to compare with
    tolerance: Tolerance = OF_FLOAT32  # of what `write` writes


def source_of(options: Namespace) -> Source:
    """Read what the command line names; raise ExportError where it cannot be read or does not fit together."""
    if options.onnx:
        return of_onnx(options)
    if options.torchscript:
        return of_torch(options, {"torchscript": options.torchscript.name}, load_torchscript(options.torchscript))
    if options.factory:
        network = load_factory(options.factory, Path(options.weights), options.seed)
        return of_torch(options, {"factory": options.factory}, network)
    return of_recipe(options)


def of_recipe(options: Namespace) -> Source:
    recipe = RECIPES[options.recipe]
    labels = read_labels(options.labels) if options.labels else imagenet_labels()
    network = load_network(replace(recipe, classes=len(labels)), options.weights, options.seed)
    labels = random_labels(len(labels)) if network.is_random else labels
    return of_torch(options, {"recipe": recipe.name}, network, labels, asdict(recipe.transform))


def of_torch(
    options: Namespace,
    made_from: dict[str, str],
    network: LoadedNetwork,
    labels: list[str] | None = None,
    transform_defaults: dict[str, Any] | None = None,
) -> Source:
    transform = chosen_transform(options, transform_defaults or {})

    def write(path: Path) -> list[str]:
        write_onnx(network.module, transform.crop_size, path)
        return []

    return Source(
        made_from=made_from,
        weights={"source": network.source, "sha256": network.sha256},
        transform=transform,
        labels=labels or read_labels(options.labels),
        write=write,
        run=partial(run_torch, network.module),
    )


def of_onnx(options: Namespace) -> Source:
    path: Path = options.onnx
    graph = read_graph(path)
    transform = chosen_transform(options, graph.transform_defaults)
    graph.check_transform(transform)

    def write(new: Path) -> list[str]:
        model, changes = fit(graph, transform.crop_size)
        onnx.save(model, new)
        return changes

    return Source(
        made_from={"onnx": path.name},
        weights={"source": path.name, "sha256": sha256(path)},
        transform=transform,
        labels=read_labels(options.labels),
        write=write,
        run=graph.run,
        tolerance=graph.tolerance,
    )


def chosen_transform(options: Namespace, defaults: dict[str, Any]) -> Transform:
    return choose_transform(defaults, options.transform, {name: getattr(options, name) for name in TRANSFORM_FIELDS})
