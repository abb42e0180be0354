"""Stubs and Triton itself killed, stubs stopped."""

import os
import signal
from collections.abc import Iterator

from .fault import Fault, Limits
from .load import Tally
from .service import Service

ANSWER_S = 2
TRITON_AGAIN_S = 20  # a start, with the launcher's pause before it


def kills(service: Service, quick: bool) -> Iterator[Fault]:
    return (signalled(name, signal.SIGKILL) for name in chosen(service, quick))


def stops(service: Service, quick: bool) -> Iterator[Fault]:
    return (signalled(name, signal.SIGSTOP) for name in chosen(service, quick))


def chosen(service: Service, quick: bool) -> list[str]:
    """Every stub; the quick form takes one of each model of the pipeline."""
    by_model = {stub.model: stub.name for stub in service.stubs() if "frames" not in stub.model}
    return list(by_model.values()) if quick else [stub.name for stub in service.stubs()]


def signalled(name: str, number: signal.Signals) -> Fault:
    def inject(service: Service) -> None:
        os.kill(service.stub(name).pid, number)

    return Fault(name=f"{number.name} to {name}", inject=inject, limits=Limits(longest_s=ANSWER_S, may_be_refused=True))


def triton_killed(service: Service, quick: bool) -> Iterator[Fault]:
    """The whole server, as a crash of it would."""

    def inject(service: Service) -> Tally | None:
        assert service.triton_pid is not None
        os.kill(service.triton_pid, signal.SIGKILL)
        return None

    yield Fault(
        name="SIGKILL to tritonserver",
        inject=inject,
        limits=Limits(whole_again_s=TRITON_AGAIN_S, may_be_refused=True),
    )
