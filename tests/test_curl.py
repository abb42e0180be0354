"""Plain curl, as the README shows it, with photographs of phones: the body arrives in many small pieces."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from server.process import TritonServer
from tests.conftest import need_program
from tests.running import http_url


def upload(server: TritonServer, path: Path) -> bytes:
    curl = need_program("curl", package="curl")
    url = f"{http_url(server)}/v2/models/pipeline/infer"
    options = ["--silent", "--show-error", "--max-time", "60", "--header", "Inference-Header-Content-Length: 0"]
    return subprocess.run([curl, *options, "--data-binary", f"@{path}", url], check=True, capture_output=True).stdout


def decode(reply: bytes, *arguments: str) -> "subprocess.CompletedProcess[str]":
    python = [sys.executable, "-m", "client", "decode", *arguments]
    outcome = subprocess.run(python, input=reply, capture_output=True, timeout=60)
    return subprocess.CompletedProcess(python, outcome.returncode, outcome.stdout.decode(), outcome.stderr.decode())


def test_the_readmes_curl_line(server: TritonServer, photos: Path) -> None:
    outcome = decode(upload(server, photos / "coffee.png"))
    assert outcome.returncode == 0
    assert outcome.stdout.splitlines()[1].split()[1:] == ["967", "espresso"]


def test_the_reply_to_a_file_that_is_no_image(server: TritonServer) -> None:
    outcome = decode(upload(server, Path(__file__)), "--format", "jsonl")
    assert outcome.returncode == 1
    assert json.loads(outcome.stdout)["error"]["text"].startswith("not_an_image: expected a JPEG, PNG, ")


@pytest.mark.parametrize("megabytes", [1, 5, 12, 30])
def test_large_photographs(server: TritonServer, photos: Path, tmp_path: Path, megabytes: int) -> None:
    """Each is answered, and the server lives on."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(large_photograph(photos / "coffee.png", megabytes * 10**6))
    outcome = decode(upload(server, path))
    assert outcome.stdout.splitlines()[1].split()[1:] == ["967", "espresso"], outcome.stderr
    assert server.process.poll() is None


def large_photograph(photo: Path, wanted_bytes: int) -> bytes:
    """Enlarge a photograph until its JPEG has about `wanted_bytes`; a camera's noise makes for honest file sizes."""
    image = cv2.imread(str(photo))
    assert image is not None
    noise = np.random.default_rng(0)
    width = int((wanted_bytes / 0.74 * 3 / 2) ** 0.5)  # this noise takes 0.74 bytes a pixel at quality 97
    large = cv2.resize(image, (width, width * 2 // 3), interpolation=cv2.INTER_CUBIC)
    noisy = np.clip(large + noise.normal(0, 12, large.shape), 0, 255).astype(np.uint8)
    done, file = cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, 97])
    assert done
    assert 0.9 * wanted_bytes < file.size < 1.2 * wanted_bytes, f"{file.size} bytes"
    return file.tobytes()
