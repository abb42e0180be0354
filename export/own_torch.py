"""A user's own network from torch: a TorchScript file, or a Python function and weights for what it builds."""

import importlib
import warnings
from pathlib import Path

import torch

from .errors import ExportError, first_line
from .pretrained import sha256
from .weights import LoadedNetwork, fit_state_dict, read_state_dict


def load_torchscript(path: Path) -> LoadedNetwork:
    """Read what torch.jit.save wrote.

    Reading runs no Python of the file's, but the TorchScript in it is a program, which runs when its network does:
    PyTorch's security policy (SECURITY.md, TorchScript models) says to treat it as code from its author.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            module = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
    except (OSError, ValueError, RuntimeError) as error:
        raise ExportError(
            f"--torchscript: expected a file that torch.jit.save wrote, got {path}, which is none: "
            "torch.jit.trace(model.eval(), images).save(FILE), or for a state_dict --factory with --weights"
        ) from error
    return LoadedNetwork(module.eval(), path.name, sha256(path))


def load_factory(factory: str, weights: Path, seed: int) -> LoadedNetwork:
    """Call `module:callable`, which takes nothing and returns the architecture, and fit the weights in."""
    torch.manual_seed(seed)
    module = call_factory(factory).eval()
    fit_state_dict(module, read_state_dict(weights), f"weights {weights.name}", factory)
    return LoadedNetwork(module, weights.name, sha256(weights))


def call_factory(factory: str) -> torch.nn.Module:
    module_name, _, attribute = factory.partition(":")
    if not module_name or not attribute:
        raise ExportError(f"--factory: expected module:callable, such as my_models:build, got {factory}")
    try:
        network = getattr(importlib.import_module(module_name), attribute)()
    except Exception as error:  # the user's own code may raise anything
        raise ExportError(
            f"--factory: expected {factory} to be importable from here and to build a network without arguments, got "
            f"{type(error).__name__}: {first_line(error)}: start from the folder that holds it, or set PYTHONPATH"
        ) from error
    if not isinstance(network, torch.nn.Module):
        raise ExportError(f"--factory: expected {factory} to return a torch.nn.Module, got {type(network).__name__}")
    return network
