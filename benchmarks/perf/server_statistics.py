"""What Triton itself counts of each model: read before and after a measurement, the difference is the measurement's."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.errors import BenchmarkError
from client import ClassificationError, PipelineClient
from client.operations import STATISTICS, Operation, model_config

ANSWER_TIMEOUT_S = 10
DURATIONS = ("queue", "compute_input", "compute_infer", "compute_output")
ENSEMBLE = "pipeline"
FIRST_STEP, LAST_STEP = "preprocess", "postprocess"


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Means over the requests that one model answered, in ms; a request is computed as long as its whole batch is."""

    requests: int
    mean_batch: float  # images of one execution
    queue_ms: float
    compute_input_ms: float
    compute_infer_ms: float
    compute_output_ms: float

    @property
    def compute_ms(self) -> float:
        return self.compute_input_ms + self.compute_infer_ms + self.compute_output_ms

    @property
    def all_ms(self) -> float:
        return self.queue_ms + self.compute_ms


def ask(url: str, operation: Operation) -> Any:
    """What the Triton at `url` replies, as JSON; raises BenchmarkError where it does not."""
    try:
        with PipelineClient(url, timeout_s=ANSWER_TIMEOUT_S, max_retries=0) as client:
            return client.control(operation)
    except ClassificationError as error:
        raise BenchmarkError(f"server: {error}") from error


def read_statistics(url: str) -> Any:
    """The statistics of all models, in the form of Triton's extension (over gRPC its 64-bit numbers are strings)."""
    return ask(url, STATISTICS)


def read_steps(url: str) -> list[str]:
    """The models of the ensemble, in its order: preprocess, the classifier, postprocess; BenchmarkError for others."""
    config = ask(url, model_config(ENSEMBLE))
    steps = [step["model_name"] for step in config.get("ensemble_scheduling", {}).get("step", [])]
    if len(steps) != 3 or (steps[0], steps[2]) != (FIRST_STEP, LAST_STEP):
        raise BenchmarkError(
            f"{url}: expected a {ENSEMBLE} of {FIRST_STEP}, a classifier and {LAST_STEP}, got the steps {steps}"
        )
    return steps


def read_classes(url: str) -> int:
    """The number of logits that `postprocess` takes."""
    inputs = {entry["name"]: entry["dims"] for entry in ask(url, model_config(LAST_STEP))["input"]}
    return int(inputs["logits"][0])


def step_times(before: Any, after: Any, model: str) -> StepTimes:
    """From two readings of the statistics; raises BenchmarkError where the model answered no request in between."""
    counted = counters(after, model)
    counted.subtract(counters(before, model))
    requests = counted["success"]
    if requests < 1:
        raise BenchmarkError(f"statistics of {model}: expected requests that it answered, got {requests} more")
    return StepTimes(
        requests=requests,
        # None is executed where a response cache has all the answers.
        mean_batch=counted["inference_count"] / max(counted["execution_count"], 1),
        **{f"{name}_ms": counted[name] / requests / 1e6 for name in DURATIONS},
    )


def counters(statistics: Mapping[str, Any], model: str) -> Counter[str]:
    """Counts since the server's start, and durations in ns, of all versions of a model together."""
    total: Counter[str] = Counter()
    for entry in statistics["model_stats"]:
        if entry["name"] == model:
            total.update({name: int(entry[name]) for name in ("inference_count", "execution_count")})
            total["success"] += int(entry["inference_stats"]["success"]["count"])
            total.update({name: int(entry["inference_stats"][name]["ns"]) for name in DURATIONS})
    return total
