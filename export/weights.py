"""Reading weights into an architecture: a checkpoint file, the pretrained ones, or random."""

import io
import lzma
import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import safetensors.torch
import torch

from .errors import ExportError
from .pretrained import sha256
from .recipes import Recipe

SUFFIXES = (".pth", ".pt", ".pth.xz", ".safetensors")


@dataclass(frozen=True)
class LoadedNetwork:
    """A network in eval mode, and where its weights are from."""

    module: torch.nn.Module
    source: str  # "pretrained", "random, seed 0" or a file's name
    sha256: str | None  # of the file; None for random weights

    @property
    def is_random(self) -> bool:
        return self.sha256 is None


def load_network(recipe: Recipe, weights: str, seed: int) -> LoadedNetwork:
    """Build the recipe's architecture with `weights`: "pretrained", "random" (from `seed`) or a file's path.

    Raises ExportError where the file is missing, is no checkpoint, or belongs to another architecture.
    """
    torch.manual_seed(seed)
    module = recipe.build(recipe.classes).eval()
    if weights == "random":
        return LoadedNetwork(module, f"random, seed {seed}", None)
    path = recipe.pretrained.fetch() if weights == "pretrained" else Path(weights)
    architecture = f"{recipe.name} with {recipe.classes} classes"
    fit_state_dict(module, read_state_dict(path), f"weights {path.name}", architecture)
    return LoadedNetwork(module, "pretrained" if weights == "pretrained" else path.name, sha256(path))


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Read .pth, .pt, .pth.xz or .safetensors; never runs code that a pickle carries."""
    if not os.path.isfile(path):  # noqa: PTH113  # Path.is_file() raises where a name is too long
        raise ExportError(f"weights: expected pretrained, random or a file ({', '.join(SUFFIXES)}), got no file {path}")
    if not path.name.endswith(SUFFIXES):
        raise ExportError(f"weights: expected a file that ends in {', '.join(SUFFIXES)}, got {path.name}")
    if is_torchscript(path):
        raise ExportError(
            f"weights {path.name}: expected a state_dict, got a TorchScript program: use --torchscript FILE"
        )
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = io.BytesIO(lzma.decompress(path.read_bytes())) if path.suffix == ".xz" else path
        state_dict = torch.load(content, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ExportError(
            f"weights {path.name}: expected a state_dict of tensors, got a pickle with other objects, which could run "
            "code: save it with torch.save(model.state_dict(), FILE)"
        ) from error
    except Exception as error:  # on damaged files torch's reader raises KeyError, IndexError and others at random
        raise ExportError(
            f"weights {path.name}: expected a checkpoint that torch can read, got a damaged or other file: "
            "save it with torch.save(model.state_dict(), FILE)"
        ) from error
    if not is_state_dict(state_dict):
        found = list(map(str, state_dict))[:5] if isinstance(state_dict, dict) else type(state_dict).__name__
        raise ExportError(
            f"weights {path.name}: expected a state_dict, names to tensors, got {found}: "
            "save it with torch.save(model.state_dict(), FILE)"
        )
    return cast(dict[str, torch.Tensor], state_dict)


def is_torchscript(path: Path) -> bool:
    """Whether it is an archive of torch.jit.save. Source: torch/serialization.py, _is_torchscript_zip."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def is_state_dict(value: object) -> bool:
    """Whether it maps names to ordinary tensors: real numbers, dense, with their content."""
    return isinstance(value, dict) and all(
        isinstance(name, str)
        and isinstance(tensor, torch.Tensor)
        and not (tensor.is_complex() or tensor.is_meta)
        and tensor.layout is torch.strided
        for name, tensor in value.items()
    )


def fit_state_dict(module: torch.nn.Module, state_dict: dict[str, torch.Tensor], what: str, architecture: str) -> None:
    """Load every tensor, and none left over; raise ExportError that names the first that do not fit."""
    own = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in state_dict.items()}
    missing = [name for name in own if name not in given and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in given if name not in own]
    reshaped = [f"{name} {given[name]} for {own[name]}" for name in own if name in given and given[name] != own[name]]
    if missing or unexpected or reshaped:
        details = [
            f"{len(names)} {kind} ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})"
            for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
            if names
        ]
        raise ExportError(f"{what}: expected exactly the tensors of {architecture}, got {'; '.join(details)}")
    module.load_state_dict(state_dict, strict=False)  # strictly compared above; old checkpoints lack the batch counter
