"""Each kind of architecture of the recipes, exported and asked in one running server, against torch."""

import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import tritonclient.grpc

from export.recipes import RECIPES
from export.weights import load_network
from server.process import TritonServer
from tests.asking import connect
from tests.conftest import export_repository
from tests.running import started

# The others have more of the same blocks, or other weights; test_export.py compares the parameters of each.
ARCHITECTURES = ["resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "efficientnet_lite0"]
SIZE = 33  # pixels: few, as all layers take their time; odd, as strides round


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """So small images keep one core busy; torch's second thread would mostly wait, at full speed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def architectures_server(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """One Triton with all of them, random weights, and the pipeline of the first."""
    folder = tmp_path_factory.mktemp("architectures")
    repository = folder / "repository"
    for name in ARCHITECTURES:
        arguments = ["--recipe", name, "--weights", "random", "--name", f"small_{name}"]
        size = ["--resize-size", str(SIZE), "--crop-size", str(SIZE)]
        exported = export_repository(folder / name, *arguments, *size)
        repository.mkdir(exist_ok=True)
        for model in exported.iterdir():
            if not (repository / model.name).exists():
                model.rename(repository / model.name)
        shutil.rmtree(folder / name)
    with started(repository) as server:
        yield server


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_served_as_torch_computes_it(architectures_server: TritonServer, name: str) -> None:
    module = load_network(RECIPES[name], "random", seed=0).module
    client = connect(architectures_server, "grpc")
    for batch in (1, 2, 7):
        images = np.random.default_rng(batch).normal(size=(batch, 3, SIZE, SIZE)).astype(np.float32)
        tensor = tritonclient.grpc.InferInput("input", list(images.shape), "FP32")
        tensor.set_data_from_numpy(images)
        logits = client.infer(f"small_{name}", [tensor]).as_numpy("logits")
        with torch.inference_mode():
            expected = module(torch.from_numpy(images)).numpy()
        assert logits.shape == (batch, 1000)
        assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
    client.close()
