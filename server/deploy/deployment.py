"""The steps of a deployment, each of which leaves a repository that can be served, whatever ends it.

Triton puts a new version in place at once and for all: what it has begun is answered by the old version, what comes
after by the new one (core r24.10, ModelLifeCycle::OnLoadFinal).
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from export.repository import refresh_variants

from ..errors import ServerError
from ..signals import signals_blocked
from .canary import remove_canary, version_files, write_canary
from .fitting import check_fits, check_sha256
from .folders import install, move, remove
from .golden import GoldenImage, answers_of, check_agreement, check_labels
from .layout import CANARY_SERVICE, SERVICE, Layout
from .triton import Answer, Triton

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One change of the version that is served. Its methods raise ServerError, and then the old version serves."""

    layout: Layout
    triton: Triton
    golden: list[GoldenImage]  # none: one made image, which must get finite scores
    min_agreement: float
    say: Say

    def deploy_export(self, exported: Path) -> int:
        """Serve an export as the canary, with the next number, which is returned; whoever calls may switch to it."""
        check_fits(exported, self.layout)
        number = self.layout.next_number
        self.say(f"version {number}: fits: the same labels, transform and tensors; {exported}")
        self._start_canary(number, exported)
        return number

    def deploy_version(self, number: int) -> None:
        """Check the canary of that number, or a version that was retired or is below the one that serves."""
        if number == self.layout.canary_version:
            self._check_canary(number)
            return
        source = self._folder_of(number)
        check_sha256(source)
        self._start_canary(number, source)

    def switch_to(self, number: int) -> None:
        """Have `pipeline` answer with that version, which is retired, older, or the canary's, which ends."""
        is_canary = self.layout.canary_version == number
        before = self._answers(CANARY_SERVICE) if is_canary else []
        if is_canary:
            self._unload_canary()  # so that never three networks are in memory
        with self._moves(number) as moves:
            self._put_in_place(number, moves)
            self._serve(number)
            after = self._answers(SERVICE)
            found = self._judge(after)
            if before:
                found = check_agreement(before, after, self.min_agreement, CANARY_SERVICE)
            self.say(f"version {number}: checked in `{SERVICE}`: {found}")
        if is_canary:
            remove_canary(self.layout)
        self.triton.wait_for_unloads(self.layout.classifier)

    def drop_canary(self) -> None:
        self._unload_canary()
        remove_canary(self.layout)

    def _start_canary(self, number: int, source: Path) -> None:
        try:
            with signals_blocked():
                write_canary(self.layout, number, source)
            self.say(f"version {number}: written beside, as {self.layout.canary}")
            seconds = self.triton.load(CANARY_SERVICE)
            self.say(f"version {number}: loaded beside, in {seconds:.1f} s")
            self._check_canary(number)
        except BaseException:
            self._forget_failed_load(self.layout.canary_folder / str(number), self.layout.served)
            self.drop_canary()
            raise

    def _check_canary(self, number: int) -> None:
        answers = self._answers(CANARY_SERVICE)
        found = self._judge(answers)
        if self.golden and self.golden[0].label is None:
            found = check_agreement(
                self._answers(SERVICE), answers, self.min_agreement, f"version {self.layout.served}"
            )
        self.say(f"version {number}: checked in `{CANARY_SERVICE}`: {found}")

    def _judge(self, answers: list[Answer]) -> str:
        """What can be said of answers by themselves."""
        if self.golden and self.golden[0].label is not None:
            return check_labels(self.golden, answers)
        if self.golden:
            return f"{len(answers)} golden images have finite scores"
        return "one made image has finite scores; nothing else was compared, for want of --golden FOLDER"

    def _answers(self, model: str) -> list[Answer]:
        if self.golden:
            return answers_of(self.golden, lambda name, file: self.triton.classify(model, name, file))
        from python_models.preprocess.warmup import sample_file  # OpenCV takes time to import

        return [self.triton.classify(model, "made image", sample_file().tobytes())]

    def _folder_of(self, number: int) -> Path:
        known = sorted({*self.layout.versions, *self.layout.retired} - {self.layout.served})
        if number not in known:
            raise ServerError(
                f"version: expected one of {known or 'none'} besides {self.layout.served}, which serves, got {number}: "
                "`python -m server status` shows them; to deploy an export give its folder"
            )
        return self.layout.existing_folder(number)

    def _put_in_place(self, number: int, moves: list[tuple[Path, Path]]) -> None:
        """Make that version the highest; `moves` are the renamings that undo it, in reverse order."""
        layout = self.layout
        target, retired = layout.version_folder(number), layout.retired_folder(number)
        if retired.is_dir():
            move(retired, target)
            moves.append((target, retired))
        elif not target.is_dir():
            install(target, layout.folder, version_files(layout.canary_folder / str(number)))
            moves.append((target, retired))
        for higher in [one for one in layout.versions if one > number]:
            move(layout.version_folder(higher), layout.retired_folder(higher))
            moves.append((layout.retired_folder(higher), layout.version_folder(higher)))

    @contextlib.contextmanager
    def _moves(self, number: int) -> Iterator[list[tuple[Path, Path]]]:
        """The renamings of the block, which are undone where it fails."""
        served, moves = self.layout.served, list[tuple[Path, Path]]()
        try:
            yield moves
        except BaseException:
            self._forget_failed_load(self.layout.version_folder(number), served)
            with signals_blocked():
                for source, target in reversed(moves):
                    move(source, target)
                if self.layout.canary_version == number:
                    remove_canary(self.layout)
            self._serve(served)
            self.triton.wait_for_unloads(self.layout.classifier)
            self.say(f"version {number}: taken back")
            raise

    def _serve(self, number: int) -> None:
        """Load the highest version, which is that one, and fit the variants in configs/ to it."""
        refresh_variants(self.layout.folder)
        seconds = self.triton.load(self.layout.classifier)
        state = self.triton.states(self.layout.classifier).get(number)
        if state != "READY":
            raise ServerError(f"version {number}: expected it to be READY after its load, got {state}")
        self.say(f"version {number}: serves, loaded in {seconds:.1f} s")

    def _unload_canary(self) -> None:
        for model in (CANARY_SERVICE, self.layout.canary):
            self.triton.unload(model)

    def _forget_failed_load(self, folder: Path, served: int) -> None:
        """Load the served network once from the version folder out of which another could not be loaded.

        Until something of that model and number has been loaded, Triton 24.10 says of itself, on /v2/health/ready, that
        it is not ready, also when the folder is gone.
        """
        model = folder.parent.name
        if not folder.is_dir() or self.triton.states(model).get(int(folder.name)) != "UNAVAILABLE":
            return
        with tempfile.TemporaryDirectory(dir=self.layout.folder, prefix=".old-") as name:
            aside = Path(name) / folder.name
            move(folder, aside)
            try:
                install(folder, self.layout.folder, version_files(self.layout.existing_folder(served)))
                self.triton.load(model)
            finally:
                remove(folder, self.layout.folder)
                move(aside, folder)
