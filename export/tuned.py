"""The variant that `make tune` writes: what it changes in a step's configuration, and its refresh from config.pbtxt.

Everything else in the variant is config.pbtxt's: when that is written anew, for other weights or another transform, the
variant follows it and keeps only its settings.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from .errors import ExportError

TUNED = "tuned"
THREADS = "intra_op_thread_count"


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """What is tuned of one step."""

    instances: int
    threads: int | None  # of each instance, 0 for every core; None where the backend is not ONNX Runtime
    preferred_batches: tuple[int, ...]  # executed as soon as so many images wait; none: all that wait, when it is free
    queue_delay_us: int  # how long it may wait for more

    @classmethod
    def of(cls, config: ModelConfig) -> "StepSettings":
        """Read them; raises ExportError where a configuration says more than these can."""
        if len(config.instance_group) > 1:
            raise ExportError(f"{config.name}: expected at most one instance_group, got {len(config.instance_group)}")
        threads = config.parameters[THREADS].string_value if THREADS in config.parameters else "0"
        if not threads.isdecimal():
            raise ExportError(f"{config.name}: expected a whole number as {THREADS}, got {threads!r}")
        return cls(
            instances=max(sum(group.count for group in config.instance_group), 1),
            threads=int(threads) if config.backend == "onnxruntime" else None,
            preferred_batches=tuple(config.dynamic_batching.preferred_batch_size),
            queue_delay_us=config.dynamic_batching.max_queue_delay_microseconds,
        )

    def applied_to(self, config: ModelConfig) -> ModelConfig:
        """A copy of `config` with these; its kind of instances, queue policies and so on stay."""
        variant = ModelConfig()
        variant.CopyFrom(config)
        group = variant.instance_group[0] if variant.instance_group else variant.instance_group.add()
        group.count = self.instances
        if self.threads is not None:
            variant.parameters[THREADS].string_value = str(self.threads)
        variant.dynamic_batching.preferred_batch_size[:] = self.preferred_batches
        variant.dynamic_batching.max_queue_delay_microseconds = self.queue_delay_us
        return variant


def write_variant(model: Path, name: str, settings: StepSettings, heading: Iterable[str] = ()) -> None:
    """Write configs/NAME.pbtxt into the folder of a model: its config.pbtxt with `settings`, `heading` as comments."""
    config = settings.applied_to(text_format.Parse((model / "config.pbtxt").read_text("utf-8"), ModelConfig()))
    path = variant_path(model, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"# {line}\n" for line in heading) + text_format.MessageToString(config), "utf-8")


def refresh_tuned(repository: Path) -> None:
    """Write the tuned variant of every model anew from its config.pbtxt; raises ExportError where one is no config."""
    for path in sorted(repository.glob(str(variant_path(Path("*"), TUNED)))):
        text = path.read_text("utf-8")
        heading = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("#")]
        try:
            settings = StepSettings.of(text_format.Parse(text, ModelConfig()))
        except text_format.ParseError as error:
            raise ExportError(f"{path}: expected a Triton model configuration, got: {error}: remove it") from error
        write_variant(path.parent.parent, TUNED, settings, heading)


def variant_path(model: Path, name: str) -> Path:
    return model / "configs" / f"{name}.pbtxt"
