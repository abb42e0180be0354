"""What good traffic sends, and the right answers to it."""

from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.images import write_photos_of_several_sizes
from benchmarks.running import sample_photos
from server.options import ServerOptions
from tests.asking import connect_to, padded, tensor

from .load import Photo

SIDES = (320, 500)  # pixels; of ImageNet's usual size, so that the network is what takes the time
KNOWN = {"coffee-500.jpg": 967}  # espresso; what a network with random weights would not say


def right_photos(options: ServerOptions, folder: Path) -> list[Photo]:
    """Photographs of scikit-image, with the classes that a healthy service gives them.

    Raises BenchmarkError where it does not recognize those that are KNOWN.
    """
    written = sorted(write_photos_of_several_sizes(folder).iterdir())
    files = [path for path in written if path.stem.endswith(tuple(f"-{side}" for side in SIDES))]
    photos = {path.name: with_class(options, path.read_bytes()) for path in files}
    for name, class_id in KNOWN.items():
        if photos[name].class_id != class_id:
            raise BenchmarkError(
                f"{name}: expected class {class_id}, got {photos[name].class_id}: serve trained weights"
            )
    return list(photos.values())


def with_class(options: ServerOptions, file: bytes) -> Photo:
    """What a healthy service says is right."""
    client = connect_to(options, "grpc")
    reply = client.infer("pipeline", [tensor("grpc", "raw_image", padded([file]))])
    client.close()
    return Photo(file, int(reply.as_numpy("class_id")[0, 0]))


def coffee() -> Path:
    return sample_photos() / "coffee.png"
