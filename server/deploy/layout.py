"""Which versions of the classifier a repository has, and where they stand; all of it can be seen by `ls`.

NAME/3/          the highest number serves: Triton takes it, in `pipeline` too
NAME/2/          older ones, which `rollback` goes back to
NAME/retired-4/  what was rolled back or has failed; no number, so Triton passes it over
NAME_canary/5/   beside them, served by `pipeline_canary` alone
"""

import re
from dataclasses import dataclass
from pathlib import Path

from export.classifier import STEPS
from export.repository import read_configs

from ..errors import ServerError

SERVICE = "pipeline"
CANARY_SERVICE = "pipeline_canary"
RETIRED = "retired-"


@dataclass(frozen=True)
class Layout:
    """The folders of one classifier in one repository."""

    repository: Path
    classifier: str

    @property
    def folder(self) -> Path:
        return self.repository / self.classifier

    @property
    def canary(self) -> str:
        return f"{self.classifier}_canary"

    @property
    def canary_folder(self) -> Path:
        return self.repository / self.canary

    @property
    def canary_service_folder(self) -> Path:
        return self.repository / CANARY_SERVICE

    @property
    def versions(self) -> list[int]:
        return numbers_in(self.folder)

    @property
    def retired(self) -> list[int]:
        return numbers_in(self.folder, RETIRED)

    @property
    def canary_version(self) -> int | None:
        """None where there is no canary, whole or in part."""
        return max(numbers_in(self.canary_folder), default=None)

    @property
    def served(self) -> int:
        """The version that Triton's default policy chooses."""
        return self.versions[-1]

    @property
    def next_number(self) -> int:
        return max(*self.versions, *self.retired, self.canary_version or 0, 0) + 1

    def version_folder(self, number: int) -> Path:
        return self.folder / str(number)

    def retired_folder(self, number: int) -> Path:
        return self.folder / f"{RETIRED}{number}"

    def existing_folder(self, number: int) -> Path:
        """Where that version stands now, retired or not."""
        return self.retired_folder(number) if number in self.retired else self.version_folder(number)


def numbers_in(folder: Path, prefix: str = "") -> list[int]:
    """The numbers of the folders that are named so, sorted."""
    paths = folder.iterdir() if folder.is_dir() else ()
    names = [path.name.removeprefix(prefix) for path in paths if path.is_dir() and path.name.startswith(prefix)]
    return sorted(int(name) for name in names if re.fullmatch("[1-9][0-9]*", name))


def find_layout(repository: Path) -> Layout:
    """Read from the ensemble `pipeline` which model is the classifier; raises ServerError where there is none."""
    service = read_configs(repository).get(SERVICE)
    steps = [step.model_name for step in service.ensemble_scheduling.step] if service else []
    classifiers = [name for name in steps if name not in STEPS]
    if len(classifiers) != 1:
        raise ServerError(
            f"{repository}: expected an ensemble `{SERVICE}` with one classifier, got steps {steps}: give the "
            "repository that is served, --model-repository DIR"
        )
    layout = Layout(repository, classifiers[0])
    if not layout.versions:
        raise ServerError(f"{layout.folder}: expected version folders such as 1/, got none: run `make repository`")
    return layout
