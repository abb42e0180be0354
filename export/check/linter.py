"""All rules, and over which models each is run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from . import ensembles, files, settings, steps
from .finding import Finding
from .models import Model, read_models, variant_names

ModelRule = Callable[[Model], Iterable[Finding]]
EnsembleRule = Callable[[Model, Mapping[str, Model]], Iterable[Finding]]
RepositoryRule = Callable[[Mapping[str, Model]], Iterable[Finding]]

# What is found without reading a network. `python -m server` shows it at the start.
CHEAP_RULES: tuple[ModelRule, ...] = (
    settings.backend,
    settings.kind_gpu,
    settings.oversubscribed_cores,
    settings.warmup_inputs,
    settings.unknown_parameters,
    settings.session_settings,
    settings.accelerators,
    settings.overridden_cuda_options,
    settings.profile_shapes,
    steps.step_settings,
    steps.preprocess_output,
    steps.preprocess_ragged,
    steps.preprocess_batching,
    steps.postprocess_labels,
    steps.cached_request_parameters,
    ensembles.ragged,
    ensembles.warmup,
    ensembles.instances,
    ensembles.platform,
    ensembles.without_steps,
)
ENSEMBLE_RULES: tuple[EnsembleRule, ...] = (
    ensembles.unknown_models,
    ensembles.unknown_versions,
    ensembles.unknown_inputs,
    ensembles.unknown_outputs,
    ensembles.missing_inputs,
    ensembles.unfed_tensors,
    ensembles.unused_tensors,
    ensembles.missing_outputs,
    ensembles.produced_twice,
    ensembles.data_types,
    ensembles.dims,
    ensembles.batch_sizes,
    ensembles.cached_request_parameters,
)
REPOSITORY_RULES: tuple[RepositoryRule, ...] = (ensembles.unused_models,)


def find(repository: Path, triton: str) -> list[Finding]:
    """Run every rule over every model and variant; `triton` is a release of releases.RELEASES, such as "24.10"."""
    from . import graphs  # onnx takes time to import, and the cheap rules do without it

    graph_rules: tuple[ModelRule, ...] = (
        graphs.unreadable,
        graphs.disagreement,
        graphs.model_sha256,
        graphs.engine_cache,
        graphs.zero_points,
        lambda model: graphs.release(model, triton),
    )
    if nothing := [*files.no_models(repository)]:
        return nothing  # what other rules say of the folders in it would mislead
    return [*_found(repository, (*files.RULES, *CHEAP_RULES, *graph_rules), ENSEMBLE_RULES)]


def find_cheap(repository: Path, variant: str | None) -> list[Finding]:
    """Run the rules that read no network over what tritonserver would load with --model-config-name=`variant`."""
    models, _ = read_models(repository, variant)
    return [*_judged(models, CHEAP_RULES, ENSEMBLE_RULES)]


def _found(
    repository: Path, rules: Iterable[ModelRule], ensemble_rules: Iterable[EnsembleRule]
) -> "dict[Finding, None]":
    """Every finding once, in order: config.pbtxt of a model without a variant is judged with each variant."""
    found: dict[Finding, None] = {}
    for variant in (None, *variant_names(repository)):
        models, unreadable = read_models(repository, variant)
        found |= dict.fromkeys(unreadable)
        found |= dict.fromkeys(_judged(models, rules, ensemble_rules))
    return found


def _judged(
    models: Mapping[str, Model], rules: Iterable[ModelRule], ensemble_rules: Iterable[EnsembleRule]
) -> Iterator[Finding]:
    for model in models.values():
        for rule in rules:
            yield from rule(model)
        if model.is_ensemble:
            for ensemble_rule in ensemble_rules:
                yield from ensemble_rule(model, models)
    for repository_rule in REPOSITORY_RULES:
        yield from repository_rule(models)
