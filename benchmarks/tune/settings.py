"""What is varied: the settings of `preprocess` and of the classifier, and which values are worth a try here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.perf.server_statistics import ENSEMBLE, FIRST_STEP
from export.check.models import read_models
from export.files import writable
from export.tuned import StepSettings, write_variant

BATCHES = (4, 8, 16)
QUEUE_DELAYS_US = (1_000, 5_000)

Change = dict[str, dict[str, Any]]  # values of fields, by step


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One candidate. Postprocess is left alone: it takes next to no time."""

    preprocess: StepSettings
    classifier: StepSettings

    def changed(self, change: Change) -> "Settings":
        return replace(self, **{step: replace(getattr(self, step), **fields) for step, fields in change.items()})

    def __str__(self) -> str:
        return f"preprocess {described(self.preprocess)}; classifier {described(self.classifier)}"


def described(step: StepSettings) -> str:
    of_threads = "" if step.threads is None else f", threads {threads(step)}"
    delay = f", delay {step.queue_delay_us / 1000:g} ms" if step.queue_delay_us else ""
    return f"x {step.instances}{of_threads}, batch {batches(step)}{delay}"


def threads(step: StepSettings) -> str:
    return {None: "-", 0: "all"}.get(step.threads, str(step.threads))


def batches(step: StepSettings) -> str:
    """The preferred batch sizes; any is Triton's default, all that wait."""
    return "/".join(map(str, step.preferred_batches)) or "any"


def coordinates(start: Settings, cores: int) -> list[list[Change]]:
    """What is varied at a time, the most rewarding first: for each the changes to try, one after the other.

    The classifier's instances and threads go together, for each pair shares out either all cores or half of them, which
    leaves the others to preprocess. Its batches are limited by preference and not by max_batch_size, which an ensemble
    and with it the clients would have to follow. A preferred batch of 1 has the instances of preprocess share what
    waits, where else the first that is free takes all of it.
    """
    return [
        [{"classifier": change} for change in shares_of_cores(cores, start.classifier.threads is not None)],
        [{"preprocess": {"instances": count}} for count in sorted({1, *halvings(cores), 2 * cores})],
        [{"preprocess": {"preferred_batches": sizes}} for sizes in ((), (1,), (4,))],
        [{"classifier": {"preferred_batches": sizes}} for sizes in ((), *((size,) for size in BATCHES))],
        [{"classifier": {"queue_delay_us": delay_us}} for delay_us in (0, *QUEUE_DELAYS_US)],
    ]


def shares_of_cores(cores: int, has_threads: bool) -> Iterable[dict[str, int]]:
    """Instances, each with its threads, none with more than its share: `export check` would find that."""
    if not has_threads:
        return [{"instances": count} for count in (1, 2, 4)]
    pairs = {(count, threads) for count in halvings(cores) for threads in halvings(cores // count)[:2]}
    pairs = pairs - {(1, cores)} | {(1, 0)}
    return [{"instances": count, "threads": threads} for count, threads in sorted(pairs)]


def halvings(cores: int) -> Sequence[int]:
    """All cores, half of them, a quarter, ... 1."""
    return [cores >> shift for shift in range(cores.bit_length())]


def read_settings(repository: Path) -> tuple[str, Settings]:
    """The classifier's name, and what the repository has now; raises BenchmarkError and ExportError."""
    if not repository.is_dir():
        raise BenchmarkError(f"model repository: expected a folder, got {repository}")
    models, findings = read_models(repository, None)
    ensemble = models[ENSEMBLE].config.ensemble_scheduling.step if ENSEMBLE in models else []
    steps = [step.model_name for step in ensemble]
    if findings or len(steps) != 3 or steps[0] != FIRST_STEP or not models.keys() >= set(steps):
        problem = "; ".join(map(str, findings)) or f"the steps {steps} and the models {list(models)}"
        raise BenchmarkError(
            f"model repository: expected a {ENSEMBLE} of {FIRST_STEP}, a classifier and another in {repository}, got "
            f"{problem}"
        )
    preprocess, classifier = (StepSettings.of(models[name].config) for name in steps[:2])
    return steps[1], Settings(preprocess=preprocess, classifier=classifier)


def write_settings(settings: Settings, repository: Path, classifier: str, name: str, heading: Sequence[str]) -> None:
    """Write them as the variants `name` of both models, with `heading` as comments; raises ExportError."""
    for model, step in ((FIRST_STEP, settings.preprocess), (classifier, settings.classifier)):
        with writable(repository / model):
            write_variant(repository / model, name, step, heading)
