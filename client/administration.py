"""What a server tells of itself and its models, and the loading and unloading of models, the same over both protocols.

Numbers of 64 bits come as text over gRPC and as numbers over HTTP, which leaves out what is empty: both are read here.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from . import operations
from .errors import AccessError, AnswerError, DeadlineError, NotServedError, RefusedError, ServiceError
from .pipeline import PipelineClient

READY, UNLOADING, UNAVAILABLE, NEVER_LOADED = "READY", "UNLOADING", "UNAVAILABLE", ""  # and LOADING
SETTLE_S = 0.5  # an unload that follows a load at once can crash Triton
POLL_S = 0.05
SERVICE = "pipeline"  # the ensemble without which there is nothing to ask

SHOWN = (  # of Statistics
    "success_count",
    "failure_count",
    "image_count",
    "execution_count",
    "mean_batch_size",
    "executions_by_batch_size",
    "queue_ms",
    "input_ms",
    "infer_ms",
    "output_ms",
)

Key = tuple[str, str]  # a model's name and version


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What a model did since it was loaded, or after an earlier look (`since`).

    Triton adds a batch's whole time to each request in it, and counts warmup too. A failed request adds to
    `failure_count` only: nothing for what a Python model itself refused, which counts as success there, and (24.10)
    two for the ensemble around it.
    """

    success_count: int  # requests
    failure_count: int
    computed_count: int  # requests that were computed, not answered from a cache
    image_count: int
    execution_count: int
    queue_ns: int
    input_ns: int
    infer_ns: int
    output_ns: int
    executions_by_batch_size: Mapping[int, int] = field(default_factory=dict)

    @property
    def queue_ms(self) -> float | None:
        """Mean of a request; None where there was none."""
        return _mean(self.queue_ns / 1e6, self.success_count)

    @property
    def input_ms(self) -> float | None:
        return _mean(self.input_ns / 1e6, self.computed_count)

    @property
    def infer_ms(self) -> float | None:
        return _mean(self.infer_ns / 1e6, self.computed_count)

    @property
    def output_ms(self) -> float | None:
        return _mean(self.output_ns / 1e6, self.computed_count)

    @property
    def mean_batch_size(self) -> float | None:
        return _mean(self.image_count, self.execution_count)

    def since(self, earlier: "Statistics") -> "Statistics":
        """What was done after `earlier`; where counters have restarted, with server or model, what they count now."""
        counts = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        sizes = {
            size: count - earlier.executions_by_batch_size.get(size, 0)
            for size, count in self.executions_by_batch_size.items()
        }
        if min(*counts.values(), *sizes.values()) < 0:
            return self
        return Statistics(**counts, executions_by_batch_size={size: count for size, count in sizes.items() if count})


_COUNTERS = [one.name for one in fields(Statistics) if one.type is int]


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a model did in an interval; times are means of a request, None where there was none."""

    images_per_s: float
    failures_per_s: float
    mean_batch_size: float | None
    queue_ms: float | None
    input_ms: float | None
    infer_ms: float | None
    output_ms: float | None

    @property
    def compute_ms(self) -> float | None:
        """Input, infer and output together."""
        parts = [part for part in (self.input_ms, self.infer_ms, self.output_ms) if part is not None]
        return sum(parts) if parts else None


@dataclass(frozen=True, kw_only=True)
class Model:
    """One version of a model.

    `state` is READY, LOADING, UNLOADING, UNAVAILABLE, or NEVER_LOADED, which is empty; `reason` is Triton's, for
    UNAVAILABLE. `ensembles` are the loaded ones of which it is a step; `statistics` is None where it is not ready.
    """

    name: str
    version: str
    state: str
    reason: str
    ensembles: Sequence[str]
    statistics: Statistics | None

    @property
    def key(self) -> Key:
        return self.name, self.version

    @property
    def is_unloaded(self) -> bool:
        """Whether it was unloaded in good order, or is about to be."""
        return self.state == UNLOADING or (self.state, self.reason) == (UNAVAILABLE, "unloaded")

    @property
    def reason_line(self) -> str:
        """The reason, which may be a traceback, in one line."""
        return " ".join(self.reason.split())


@dataclass(frozen=True, kw_only=True)
class ServerStatus:
    """A server at the time `taken_s` (of time.monotonic): ensembles come before their steps, `pipeline` before all.

    `is_index_restricted`: its index of models needs a key, so that `models` are only those that are ready.
    """

    url: str
    name: str
    version: str
    is_ready: bool
    models: Sequence[Model]
    is_index_restricted: bool
    taken_s: float

    @property
    def problems(self) -> list[str]:
        """What is not ready. A model that nobody has loaded yet is no problem, unless it is `pipeline`.

        Nor is a version that was unloaded where another is ready: so a new version takes an old one's place.
        """
        served = {one.name for one in self.models if one.state == READY}
        server = [] if self.is_ready else ["server: expected it to be ready, it is not"]
        found = [
            f"model {one.name}: expected {READY}, got {': '.join(filter(None, (one.state, one.reason_line)))}"
            for one in self.models
            if one.state not in (READY, NEVER_LOADED) and not (one.is_unloaded and one.name in served)
        ]
        known = any(one.name == SERVICE and one.state != NEVER_LOADED for one in self.models)
        return [*server, *found, *([] if known else [f"model {SERVICE}: expected {READY}, it is not loaded"])]


def read_status(client: PipelineClient) -> ServerStatus:
    """Ask the server for everything; raises ServiceError."""
    metadata = client.control(operations.SERVER_METADATA)
    models, is_index_restricted = _read_models(client)
    try:
        return ServerStatus(
            url=client.url,
            name=metadata["name"],
            version=metadata["version"],
            is_ready=_is_ready(client),
            models=models,
            is_index_restricted=is_index_restricted,
            taken_s=time.monotonic(),
        )
    except (KeyError, TypeError) as error:
        raise _no_triton(client, metadata) from error


def _read_models(client: PipelineClient) -> tuple[list[Model], bool]:
    """The models, and whether the index of them is restricted."""
    reply = client.control(operations.STATISTICS)
    try:
        index = client.control(operations.REPOSITORY_INDEX)
    except AccessError:
        index = None
    try:
        statistics = parse_statistics(reply)
        steps = {name: _read_steps(client, name) for name, _ in statistics}
        return parse_models(index, statistics, steps), index is None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _no_triton(client, reply) from error


def _read_steps(client: PipelineClient, model: str) -> list[str]:
    """The steps of an ensemble; none for any other model."""
    try:
        config = client.control(operations.model_config(model))
    except NotServedError:  # unloaded meanwhile
        return []
    return [step["model_name"] for step in config.get("ensemble_scheduling", {}).get("step", [])]


def _is_ready(client: PipelineClient) -> bool:
    try:
        reply = client.control(operations.SERVER_READY)
    except ServiceError as error:
        if type(error) is ServiceError:  # over HTTP the answer is a status alone, 400 for "no"
            return False
        raise
    return reply is None or bool(reply["ready"])


def _no_triton(client: PipelineClient, reply: Any) -> AnswerError:
    return AnswerError(f"{client.url}: expected the metadata and statistics of a Triton server, got {str(reply)[:80]}")


def parse_statistics(reply: Any) -> dict[Key, Statistics]:
    """The reply to operations.STATISTICS, over either protocol; it has the models that are ready, and no other."""
    return {(one["name"], one["version"]): _parse_one(one) for one in reply["model_stats"]}


def _parse_one(model: Any) -> Statistics:
    times = model["inference_stats"]
    return Statistics(
        success_count=int(times["success"]["count"]),
        failure_count=int(times["fail"]["count"]),
        computed_count=int(times["compute_infer"]["count"]),
        image_count=int(model["inference_count"]),
        execution_count=int(model["execution_count"]),
        queue_ns=int(times["queue"]["ns"]),
        input_ns=int(times["compute_input"]["ns"]),
        infer_ns=int(times["compute_infer"]["ns"]),
        output_ns=int(times["compute_output"]["ns"]),
        executions_by_batch_size={
            int(batch["batch_size"]): int(batch["compute_infer"]["count"]) for batch in model["batch_stats"]
        },
    )


def parse_models(index: Any, statistics: Mapping[Key, Statistics], steps: Mapping[str, Sequence[str]]) -> list[Model]:
    """The reply to operations.REPOSITORY_INDEX with what else is known; where it is None, the models with statistics.

    `steps` are those of each loaded ensemble. In the order of the ensembles' steps.
    """
    if index is None:
        index = [{"name": name, "version": version, "state": READY} for name, version in statistics]
    models = [
        Model(
            name=one["name"],
            version=one.get("version", ""),
            state=one.get("state", NEVER_LOADED),
            reason=one.get("reason", ""),
            ensembles=[ensemble for ensemble, its_steps in steps.items() if one["name"] in its_steps],
            statistics=statistics.get((one["name"], one.get("version", ""))),
        )
        for one in index
    ]
    order = step_order({one.name for one in models}, steps)
    return sorted(models, key=lambda one: (order.index(one.name), int(one.version or 0)))


def step_order(names: Iterable[str], steps: Mapping[str, Sequence[str]]) -> list[str]:
    """`pipeline`, its steps in their order, the other ensembles with theirs, the other models.

    >>> step_order({"a", "b", "c", "pipeline", "x"}, {"pipeline": ["c", "a"], "x": ["b", "a"]})
    ['pipeline', 'c', 'a', 'x', 'b']
    """
    first = sorted(names, key=lambda name: (name != SERVICE, not steps.get(name), name))
    return list(dict.fromkeys(each for name in first for each in (name, *steps.get(name, ()))))


def rates_between(earlier: ServerStatus, later: ServerStatus) -> dict[Key, Rates]:
    """What each model that is ready now did between two looks, by name and version; never less than nothing."""
    interval_s = later.taken_s - earlier.taken_s
    before = {one.key: one.statistics for one in earlier.models}
    found = {}
    for model in later.models:
        if model.statistics is not None:
            previous = before.get(model.key)  # None where it was loaded meanwhile
            found[model.key] = _rates(model.statistics.since(previous) if previous else model.statistics, interval_s)
    return found


def _rates(done: Statistics, interval_s: float) -> Rates:
    return Rates(
        images_per_s=done.image_count / interval_s,
        failures_per_s=done.failure_count / interval_s,
        mean_batch_size=done.mean_batch_size,
        queue_ms=done.queue_ms,
        input_ms=done.input_ms,
        infer_ms=done.infer_ms,
        output_ms=done.output_ms,
    )


def load_model(client: PipelineClient, name: str) -> None:
    """Load a model, with an ensemble its steps too, and return when it is ready.

    Where it is loaded already, Triton loads it again if its files have changed. Raises NotServedError where the
    repository has no such model, ServiceError with Triton's reason where it cannot be loaded.
    """
    _settle(client, name)
    client.control(operations.load_model(name))  # answered when all is done, unlike an unload


def unload_model(client: PipelineClient, name: str, force: bool = False) -> list[str]:
    """Unload a model, return when it is gone: the names of what went, with the ensembles of which it is a step.

    Requests that it has begun are answered first. Raises RefusedError where there are such ensembles, unless `force`;
    NotServedError where the repository has no such model.
    """
    _settle(client, name)
    models, _ = _read_models(client)
    ensembles = sorted({ensemble for one in models if one.name == name for ensemble in one.ensembles})
    if ensembles and not force:
        uses = f"got {name}, a step of {' and '.join(ensembles)}"
        raise RefusedError("client", "in_use", f"expected a model that no loaded ensemble needs, {uses}")
    client.control(operations.unload_model(name))
    _wait_for(client, {name, *ensembles}, {UNAVAILABLE, NEVER_LOADED})
    return [name, *ensembles]


def _settle(client: PipelineClient, name: str) -> None:
    """Wait before an operation: so whatever was done last has its half second, be it by others or cut off."""
    _wait_for(client, {name}, {READY, UNAVAILABLE, NEVER_LOADED})
    time.sleep(SETTLE_S)


def _wait_for(client: PipelineClient, names: Collection[str], wanted: Collection[str]) -> None:
    """Until each version of the models is in one of the states `wanted`."""
    end_s = time.monotonic() + client.timeout_s
    while others := {name: state for name, state in _states(client, names) if state not in wanted}:
        if time.monotonic() > end_s:
            expected = " or ".join(sorted(state or "not loaded" for state in wanted))
            raise DeadlineError(f"models: expected {expected} within {client.timeout_s:g} s, got {others}")
        time.sleep(POLL_S)


def _states(client: PipelineClient, names: Collection[str]) -> list[tuple[str, str]]:
    """Name and state of each version of the models."""
    index = client.control(operations.REPOSITORY_INDEX)
    known = {one["name"] for one in index}
    if not known.issuperset(names):
        raise NotServedError(f"model: expected one of {', '.join(sorted(known))}, got {', '.join(names)}")
    return [(one["name"], one.get("state", NEVER_LOADED)) for one in index if one["name"] in names]


def as_json(status: ServerStatus) -> dict[str, Any]:
    """Everything in the types of JSON; statistics also with their means, but not with nanoseconds."""
    row = asdict(status)
    del row["taken_s"]
    for model, written in zip(status.models, row["models"], strict=True):
        written["statistics"] = model.statistics and {name: getattr(model.statistics, name) for name in SHOWN}
    return {**row, "problems": status.problems}
