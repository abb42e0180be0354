"""A network that is broken, put in place under traffic: the one that serves goes on."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial

import tritonclient.utils

from tests.asking import connect_to

from .fault import Fault
from .load import Outcome, Tally
from .service import Service

CLASSIFIER = "efficientnet_lite0"
NEW_VERSION = "2"
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "noise": lambda file: b"\xff" * 1000,
    "half": lambda file: file[: len(file) // 2],
    "empty": lambda file: b"",
    "bits-turned": lambda file: bytes(255 - byte for byte in file[:2000]) + file[2000:],
}


def corrupt_files(service: Service, quick: bool) -> Iterator[Fault]:
    """Loaded past `python -m server deploy`, which would not let it come so far."""
    for name, damage in DAMAGE.items():
        yield Fault(name=f"a corrupt network is loaded: {name}", inject=partial(load, damage))


def load(damage: Callable[[bytes], bytes], service: Service) -> Tally:
    model = service.options.repository / CLASSIFIER
    shutil.copytree(model / "1", model / NEW_VERSION)
    network = model / NEW_VERSION / "model.onnx"
    network.write_bytes(damage(network.read_bytes()))
    client = connect_to(service.options, "grpc")
    result = Tally()
    try:
        client.load_model(CLASSIFIER)
        result.add(Outcome.WRONG, 0, "it was loaded")
    except tritonclient.utils.InferenceServerException as error:
        result.add(Outcome.REJECTED, 0, str(error.message()))
    finally:
        client.close()
        shutil.rmtree(model / NEW_VERSION)
    return result
