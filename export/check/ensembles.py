"""Rules on ensembles: what they may not have, and the wires between their steps."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelEnsembling

from .finding import Finding
from .models import Model, listed, type_name
from .steps import reads_request_parameters

Models = Mapping[str, Model]


# What an ensemble may not have


def ragged(model: Model) -> Iterator[Finding]:
    if model.is_ensemble:
        for entry in model.config.input:
            if entry.allow_ragged_batch:
                yield model.finding(
                    f"input '{entry.name}'.allow_ragged_batch",
                    "expected none on an ensemble, got true, which Triton ignores: set it on the step that takes it",
                )


def warmup(model: Model) -> Iterator[Finding]:
    if model.is_ensemble and model.config.model_warmup:
        yield model.finding(
            "model_warmup", "expected none on an ensemble, got one, which Triton refuses: give it to the steps"
        )


def instances(model: Model) -> Iterator[Finding]:
    if model.is_ensemble and model.config.instance_group:
        yield model.finding(
            "instance_group", "expected none on an ensemble, got one, which Triton refuses: give it to the steps"
        )


def platform(model: Model) -> Iterator[Finding]:
    if model.is_ensemble and model.config.platform != "ensemble":
        yield model.finding("platform", f"expected 'ensemble', got '{model.config.platform}': change it")


def without_steps(model: Model) -> Iterator[Finding]:
    if model.is_ensemble and not model.config.ensemble_scheduling.step:
        yield model.finding("ensemble_scheduling.step", "expected at least one, got none: name the models to run")


# Around them


def unused_models(models: Models) -> Iterator[Finding]:
    """A network that no ensemble runs, as an export of another name leaves it: Triton loads it all the same."""
    ensembles = [model for model in models.values() if model.is_ensemble]
    used = {step.model_name for ensemble in ensembles for step in ensemble.config.ensemble_scheduling.step}
    for name, model in models.items():
        if ensembles and name not in used and _is_network(model):
            yield Finding(
                model.folder,
                "ensemble",
                f"expected a step of {listed([ensemble.name for ensemble in ensembles])} that runs it, got none: it "
                f"takes memory all the same, remove {model.folder}, or give its export a repository of its own",
            )


def _is_network(model: Model) -> bool:
    return model.backend in ("onnxruntime", "tensorrt") or any(
        (version / "manifest.json").is_file() for version in model.versions
    )


# The wires


@dataclass(frozen=True)
class Step:
    """A step whose model is in the repository."""

    field: str
    step: ModelEnsembling.Step
    model: Model


@dataclass(frozen=True)
class End:
    """One end of a wire: a tensor of the ensemble or of a step.

    Its dims are without the batch, which Triton adds for the steps where only the ensemble has none.
    """

    field: str
    owner: str
    name: str
    data_type: str
    dims: tuple[int, ...]


def known_steps(ensemble: Model, models: Models) -> list[Step]:
    return [
        Step(f"ensemble_scheduling.step[{index}]", step, models[step.model_name])
        for index, step in enumerate(ensemble.config.ensemble_scheduling.step)
        if step.model_name in models
    ]


def ends(ensemble: Model, models: Models) -> dict[str, list[End]]:
    """Every wire of the ensemble: its name, and its ends in the order of the file."""
    wires: dict[str, list[End]] = defaultdict(list)
    for kind, entries in (("input", ensemble.config.input), ("output", ensemble.config.output)):
        for entry in entries:
            field = f"{kind} '{entry.name}'"
            wires[entry.name].append(_end(field, ensemble, entry))
    for step in known_steps(ensemble, models):
        for kind, wiring, entries in (
            ("input_map", step.step.input_map, step.model.config.input),
            ("output_map", step.step.output_map, step.model.config.output),
        ):
            for entry in entries:
                if entry.name in wiring:
                    field = f"{step.field}.{kind} '{entry.name}'"
                    wires[wiring[entry.name]].append(_end(field, step.model, entry))
    return wires


def _end(field: str, owner: Model, entry: Any) -> End:
    return End(field, owner.name, entry.name, type_name(entry.data_type), tuple(entry.dims))


def unknown_models(ensemble: Model, models: Models) -> Iterator[Finding]:
    for index, step in enumerate(ensemble.config.ensemble_scheduling.step):
        if step.model_name not in models:
            yield ensemble.finding(
                f"ensemble_scheduling.step[{index}].model_name",
                f"expected a model of the repository, got '{step.model_name}': it has {listed(sorted(models))}",
            )


def unknown_versions(ensemble: Model, models: Models) -> Iterator[Finding]:
    for step in known_steps(ensemble, models):
        wanted, versions = step.step.model_version, [version.name for version in step.model.versions]
        if wanted != -1 and str(wanted) not in versions:
            yield ensemble.finding(
                f"{step.field}.model_version",
                f"expected -1, the newest, or one of {listed(versions)} of {step.model.name}, got {wanted}: write -1",
            )


def unknown_inputs(ensemble: Model, models: Models) -> Iterator[Finding]:
    for step in known_steps(ensemble, models):
        yield from _unknown(ensemble, f"{step.field}.input_map", step.step.input_map, step.model, "input")


def unknown_outputs(ensemble: Model, models: Models) -> Iterator[Finding]:
    for step in known_steps(ensemble, models):
        yield from _unknown(ensemble, f"{step.field}.output_map", step.step.output_map, step.model, "output")


def _unknown(ensemble: Model, field: str, wiring: Iterable[str], model: Model, kind: str) -> Iterator[Finding]:
    names = [entry.name for entry in (model.config.input if kind == "input" else model.config.output)]
    for key in sorted(set(wiring) - set(names)):
        yield ensemble.finding(
            field, f"expected as key an {kind} of {model.name}, got '{key}': {model.name} has {listed(names)}"
        )


def missing_inputs(ensemble: Model, models: Models) -> Iterator[Finding]:
    for step in known_steps(ensemble, models):
        for entry in step.model.config.input:
            if not entry.optional and entry.name not in step.step.input_map:
                yield ensemble.finding(
                    f"{step.field}.input_map",
                    f"expected every input of {step.model.name}, got none of key '{entry.name}': wire it",
                )


def unfed_tensors(ensemble: Model, models: Models) -> Iterator[Finding]:
    fed = {entry.name for entry in ensemble.config.input}
    fed |= {value for step in ensemble.config.ensemble_scheduling.step for value in step.output_map.values()}
    for index, step in enumerate(ensemble.config.ensemble_scheduling.step):
        for key, value in sorted(step.input_map.items()):
            if value not in fed:
                yield ensemble.finding(
                    f"ensemble_scheduling.step[{index}].input_map '{key}'",
                    f"expected as value an input of the ensemble or an output of a step, got '{value}': those are "
                    f"{listed(sorted(fed))}",
                )


def unused_tensors(ensemble: Model, models: Models) -> Iterator[Finding]:
    steps = ensemble.config.ensemble_scheduling.step
    used = {value for step in steps for value in step.input_map.values()}
    for entry in ensemble.config.input:
        if entry.name not in used:
            yield ensemble.finding(
                f"input '{entry.name}'", "expected a step that takes it, got none: remove it, or wire it to a step"
            )
    used |= {entry.name for entry in ensemble.config.output}
    for index, step in enumerate(steps):
        for key, value in sorted(step.output_map.items()):
            if value not in used:
                yield ensemble.finding(
                    f"ensemble_scheduling.step[{index}].output_map '{key}'",
                    f"expected a step that takes '{value}', or an output of the ensemble, got none: remove it, a step "
                    "may keep an output to itself",
                )


def missing_outputs(ensemble: Model, models: Models) -> Iterator[Finding]:
    made = {value for step in ensemble.config.ensemble_scheduling.step for value in step.output_map.values()}
    for entry in ensemble.config.output:
        if entry.name not in made:
            yield ensemble.finding(
                f"output '{entry.name}'",
                f"expected a step that makes it, got none: the steps make {listed(sorted(made))}",
            )


def produced_twice(ensemble: Model, models: Models) -> Iterator[Finding]:
    makers: dict[str, list[str]] = defaultdict(list)
    for entry in ensemble.config.input:
        makers[entry.name].append("a request")
    for step in ensemble.config.ensemble_scheduling.step:
        for value in step.output_map.values():
            makers[value].append(step.model_name)
    for name, found in makers.items():
        if len(found) > 1:
            yield ensemble.finding(
                f"ensemble_scheduling '{name}'", f"expected one origin, got {listed(found)}: rename all but one"
            )


def data_types(ensemble: Model, models: Models) -> Iterator[Finding]:
    for name, (first, *others) in ends(ensemble, models).items():
        for other in others:
            if other.data_type != first.data_type:
                yield _disagreement(ensemble, name, first, other, first.data_type, other.data_type)


def dims(ensemble: Model, models: Models) -> Iterator[Finding]:
    for name, (first, *others) in ends(ensemble, models).items():
        for other in others:
            agree = len(first.dims) == len(other.dims) and all(
                -1 in (ours, theirs) or ours == theirs for ours, theirs in zip(first.dims, other.dims, strict=True)
            )
            if not agree:
                yield _disagreement(ensemble, name, first, other, str(list(first.dims)), str(list(other.dims)))


def _disagreement(ensemble: Model, name: str, first: End, other: End, expected: str, actual: str) -> Finding:
    return ensemble.finding(
        other.field,
        f"expected {expected}, as '{first.name}' of {first.owner} has it, got {actual} of {other.owner}: both are "
        f"'{name}' of the ensemble, make them agree",
    )


def batch_sizes(ensemble: Model, models: Models) -> Iterator[Finding]:
    for step in known_steps(ensemble, models):
        if ensemble.config.max_batch_size > step.model.config.max_batch_size:
            yield ensemble.finding(
                "max_batch_size",
                f"expected at most {step.model.config.max_batch_size}, that of its step {step.model.name}, got "
                f"{ensemble.config.max_batch_size}: lower it, or raise the step's",
            )


def cached_request_parameters(ensemble: Model, models: Models) -> Iterator[Finding]:
    if not ensemble.config.response_cache.enable:
        return
    for step in known_steps(ensemble, models):
        if reads_request_parameters(step.model):
            yield ensemble.finding(
                "response_cache.enable",
                f"expected false, because its step {step.model.name} reads request parameters, got true: the cache's "
                "key leaves them out, so one caller would get another's answer, remove it",
            )
