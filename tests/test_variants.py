"""The GPU variants of the classifier's config, and the warm-up, as far as a machine without a GPU can show them."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.__main__ import main as export
from export.variants import CUDA, PLAN, TENSORRT
from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.warmup import HEIGHT, WIDTH, sample_file, sample_frame
from server.process import TritonServer
from tests.asking import ask, connect
from tests.running import started

NETWORK = "efficientnet_lite0"


@pytest.fixture(scope="module")
def repository(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("variants") / "repository"
    shutil.copytree(lite0, path)
    return path


@pytest.fixture(scope="module")
def with_tensorrt(repository: Path) -> Iterator[TritonServer]:
    """Without a GPU its accelerator is left out of account: the rest of the variant is served."""
    arguments = [f"--model-config-name={TENSORRT}", "--log-verbose=1", "--log-info=true"]
    with started(repository, *arguments) as server:
        yield server


def test_the_variant_is_taken_where_there_is_one_and_config_pbtxt_elsewhere(
    with_tensorrt: TritonServer, photos: Path
) -> None:
    client = connect(with_tensorrt, "grpc")
    try:
        configs = {name: client.get_model_config(name).config for name in (NETWORK, "preprocess", "pipeline")}
    finally:
        client.close()
    (accelerator,) = configs[NETWORK].optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.parameters["trt_profile_max_shapes"] == "input:32x3x224x224"
    assert configs["preprocess"].parameters["crop_size"].string_value == "224"
    assert configs["pipeline"].platform == "ensemble"
    answer = ask(with_tensorrt, "grpc", [(photos / "coffee.png").read_bytes()])
    assert answer["label"][0, 0] == b"espresso"


def test_triton_warms_the_stand_in_up_before_it_is_ready(with_tensorrt: TritonServer) -> None:
    assert with_tensorrt.options.log is not None
    log = with_tensorrt.options.log.read_text()
    for batch in (1, 8, 32):
        assert re.search(rf"'{NETWORK}' instance {NETWORK}_0_0 is running warmup sample 'batch of {batch}'", log)
        assert f'"model {NETWORK}, instance {NETWORK}_0_0, executing {batch} requests"' in log
    assert log.rindex("is running warmup sample") < log.index(f"successfully loaded '{NETWORK}'")


def test_preprocess_is_warmed_up_with_a_file_that_it_takes() -> None:
    limits = Limits(max_image_bytes=1 << 20, max_image_pixels=1 << 20, max_image_frames=1, max_jpeg_scans=20)
    (file,), (frame,) = sample_file(), sample_frame()
    assert decode(file, limits).shape == frame.shape == (HEIGHT, WIDTH, 3)


def read(repository: Path, variant: str) -> ModelConfig:
    path = repository / NETWORK / "configs" / f"{variant}.pbtxt"
    return text_format.Parse(path.read_text(), ModelConfig())


def test_variants_keep_the_contract_of_config_pbtxt(lite0: Path) -> None:
    original = text_format.Parse((lite0 / NETWORK / "config.pbtxt").read_text(), ModelConfig())
    for variant in (CUDA, TENSORRT, PLAN):
        config = read(lite0, variant)
        assert (config.name, config.max_batch_size) == (NETWORK, 32)
        assert (config.input, config.output) == (original.input, original.output)
        assert config.instance_group == original.instance_group  # which names no kind
        assert [sample.batch_size for sample in config.model_warmup] == [1, 8, 32]


@pytest.fixture
def trtexec(tmp_path: Path) -> Path:
    """One that writes its arguments into the plan."""
    path = tmp_path / "bin" / "trtexec"
    path.parent.mkdir()
    path.write_text(
        '#!/bin/sh\nfor word in "$@"; do case $word in --saveEngine=*) echo "$@" > "${word#*=}";; esac; done\n'
    )
    path.chmod(0o755)
    return path


def build_plan(repository: Path, trtexec: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": f"{trtexec.parent}:{os.environ['PATH']}"}
    script = repository / NETWORK / "configs" / "build_plan.sh"
    return subprocess.run(["sh", script], env=environment, capture_output=True, text=True, timeout=60)


def test_the_plan_is_built_for_all_batches_and_kept_by_a_refresh(lite0: Path, tmp_path: Path, trtexec: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(lite0, repository)
    outcome = build_plan(repository, trtexec)
    assert outcome.returncode == 0, outcome.stderr
    plan = repository / NETWORK / "1" / read(repository, PLAN).default_model_filename
    words = plan.read_text().split()
    assert {"--fp16", "--minShapes=input:1x3x224x224", "--maxShapes=input:32x3x224x224"} <= set(words)
    arguments = ["--name", NETWORK, "--output", str(lite0.parent), "--repository", str(repository)]
    assert export(["repository", *arguments]) == 0
    assert plan.is_file()


def test_the_plan_is_not_built_from_another_network(lite0: Path, tmp_path: Path, trtexec: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(lite0, repository)
    with (repository / NETWORK / "1" / "model.onnx").open("ab") as file:
        file.write(b"\0")
    outcome = build_plan(repository, trtexec)
    assert outcome.returncode == 1
    assert "model.onnx: expected the one that this script was written for, got another" in outcome.stderr
    assert list((repository / NETWORK / "1").glob("*.plan")) == []
