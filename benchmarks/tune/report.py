"""What was tried, as a table for a terminal and as CSV."""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.perf.report import aligned
from export.tuned import StepSettings

from .search import Goal, Trial
from .settings import Settings, batches, threads

STEPS = ("preprocess", "classifier")
STEP_COLUMNS = tuple(field.name for field in fields(StepSettings))
FIGURES = ("images_per_s", "p50_ms", "p99_ms")
CSV_COLUMNS = (
    *(f"{step}_{column}" for step in STEPS for column in STEP_COLUMNS),
    "concurrency",
    *FIGURES,
    "meets_bound",
    "problem",
)


def trial_table(trials: Sequence[Trial], goal: Goal, defaults: Settings, best: Trial) -> str:
    """A line a trial, in the order of the search."""
    heading = ["", "preprocess", "batch", "classifier", "threads", "batch", "delay us", "in flight", "images/s"]
    return aligned(
        [
            [*heading, "p50 ms", "p99 ms", bound_heading(goal)],
            *([name_of(trial, defaults, best), *trial_row(trial, goal)] for trial in trials),
        ]
    )


def bound_heading(goal: Goal) -> str:
    return "" if math.isinf(goal.latency_ms) else f"p99 <= {goal.latency_ms:g}"


def name_of(trial: Trial, defaults: Settings, best: Trial) -> str:
    names = [name for name, fits in (("defaults", trial.settings == defaults), ("best", trial is best)) if fits]
    return ", ".join(names)


def trial_row(trial: Trial, goal: Goal) -> list[str]:
    first, classifier = trial.settings.preprocess, trial.settings.classifier
    of_preprocess = [str(first.instances), batches(first)]
    of_classifier = [str(classifier.instances), threads(classifier), batches(classifier)]
    met = "" if math.isinf(goal.latency_ms) else "yes" if goal.is_met(trial.p99_ms) else "no"
    figures = ["-"] * 3 if trial.problem else [f"{getattr(trial, name):.1f}" for name in FIGURES]
    load = [str(classifier.queue_delay_us), str(trial.concurrency)]
    return [*of_preprocess, *of_classifier, *load, *figures, "failed" if trial.problem else met]


def write_csv(trials: Iterable[Trial], goal: Goal, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS)
        writer.writeheader()
        writer.writerows(csv_row(trial, goal) for trial in trials)


def csv_row(trial: Trial, goal: Goal) -> dict[str, object]:
    steps = {step: asdict(getattr(trial.settings, step)) for step in STEPS}
    settings = {f"{step}_{column}": value for step, values in steps.items() for column, value in values.items()}
    figures = {name: "" if trial.problem else getattr(trial, name) for name in FIGURES}
    return {
        **settings,
        "concurrency": trial.concurrency,
        **figures,
        "meets_bound": "" if trial.problem else goal.is_met(trial.p99_ms),
        "problem": trial.problem.partition("\n")[0],
    }
