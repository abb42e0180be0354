"""What is harmed: a repository of its own, and services of it."""

import shutil
import tempfile
from pathlib import Path

from benchmarks.running import export_repository

from .load import Photo
from .photos import right_photos
from .service import Service

RECIPE = "efficientnet_lite0"


class Bench:
    """A repository to harm, and services of it, one at a time."""

    def __init__(self, folder: Path, repository: Path | None) -> None:
        self.folder = folder
        original = repository or export_repository(RECIPE, "pretrained", folder / "export")
        self.repository = Path(shutil.copytree(original, folder / "repository"))
        self.photos: list[Photo] = []  # once there was a service, which said what is right

    def service(self, shared_memory_mb: int | None = None) -> Service:
        service = Service(self.repository, self.folder, shared_memory_mb)
        if not self.photos:
            try:
                self.photos = right_photos(service.options, Path(tempfile.mkdtemp(dir=self.folder)))
            except BaseException:
                service.stop()
                raise
        return service
