"""Starts everything that is compared for one network."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.perf_analyzer import PerfAnalyzer
from server.options import ServerOptions, with_free_ports
from server.process import TritonServer

from .contenders import Contender, EnsembleOverGrpc, EnsembleOverHttp, InProcess, OverHttp
from .exports import Network
from .figures import Group
from .load.generator import Generator, start
from .others import CORES, OTHERS, Other, start_other
from .processes import pause
from .requests import HOST, TRITON
from .rivals.settings import Settings

HAND_OVERS = {"normalized": "FP32", "pixels": "UINT8"}
DIRECT = "client preprocessing, gRPC"
BARE = {  # name -> group and transform
    "bare processes, our transform": (Group.BARE, "ours"),
    "bare processes, Pillow": (Group.BARE_PILLOW, "pillow"),
}


def ensemble_name(hand_over: str, protocol: str) -> str:
    return f"ensemble, {HAND_OVERS[hand_over]}, {protocol}"


NAMES = [
    *(ensemble_name(hand_over, protocol) for hand_over in HAND_OVERS for protocol in ("gRPC", "HTTP")),
    DIRECT,
    *BARE,
    *(name for other in OTHERS for name in other.encodings),
]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """The images, in every form in which a generator takes them."""

    files: Sequence[Path]
    folder: Path  # of these files alone
    requests: Mapping[str, Path]  # folders by the encoding's name
    inputs: Mapping[str, str]  # perf_analyzer's options


def start_triton(stack: ExitStack, repository: Path, log: Path) -> tuple[TritonServer, float]:
    """Start one, which `stack` will stop; also return the seconds until it was ready."""
    options = ServerOptions(repository=repository, http_port=0, grpc_port=0, metrics_port=0, log=log)
    started = time.monotonic()
    server = stack.enter_context(TritonServer(with_free_ports(options)))
    server.wait_until_ready()
    return server, time.monotonic() - started


def ensembles(
    servers: Mapping[str, TritonServer], generator: Generator, analyzer: PerfAnalyzer | None, sent: Sent
) -> Iterator[Contender]:
    """Each hand-over over HTTP, and over gRPC where there is a perf_analyzer."""
    for hand_over, server in servers.items():
        pids = [server.process.pid]
        if analyzer is not None:
            yield EnsembleOverGrpc(
                name=ensemble_name(hand_over, "gRPC"),
                group=Group.ENSEMBLE,
                pids=pids,
                url=server.options.grpc_url,
                analyzer=analyzer,
                inputs=sent.inputs,
            )
        yield EnsembleOverHttp(
            name=ensemble_name(hand_over, "HTTP"),
            group=Group.ENSEMBLE,
            pids=pids,
            port=server.options.http_port,
            encoding=TRITON,
            requests=sent.requests[TRITON.name],
            generator=generator,
        )


def start_others(
    stack: ExitStack,
    others: Sequence[Other],
    network: Network,
    triton: TritonServer,
    python: Path,
    generator: Generator,
    sent: Sent,
    logs: Path,
) -> list[Contender]:
    """Start all at once, wait for each, and have it stand still until it is asked."""
    running = [
        start_other(stack, other, python, settings(other, port, network, triton), logs)
        for other, port in zip(others, free_ports(len(others)), strict=True)
    ]
    for each in running:
        each.wait_until_ready(sent.files[0])
        print(f"{each.other.name}: ready", flush=True)
    for each in running:
        pause(each.process.pid)
    return [
        OverHttp(
            name=name,
            group=each.other.group,
            pids=[each.process.pid, *([triton.process.pid] if each.other.is_gateway else [])],
            port=each.port,
            encoding=encoding,
            requests=sent.requests[encoding.name],
            generator=generator,
            paused=each.process.pid,
        )
        for each in running
        for name, encoding in each.other.encodings.items()
    ]


def settings(other: Other, port: int, network: Network, triton: TritonServer) -> Settings:
    """ONNX Runtime has one thread in each worker, of which there is one a core: more would wait for each other."""
    return Settings(
        port=str(port),
        model=str(network.model),
        labels=str(network.labels),
        transform=other.transform,
        workers=str(CORES),
        threads="1",
        triton_address=address(triton),
        triton_model=network.name,
    )


def address(triton: TritonServer) -> str:
    return triton.options.grpc_url.removeprefix("grpc://")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:  # each stays bound until all are chosen, so that no two are the same
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def start_in_process(
    stack: ExitStack, network: Network, triton: TritonServer, sent: Sent, is_wanted: Callable[[str], bool]
) -> Iterator[Contender]:
    """The client that preprocesses, and the bare processes."""
    labels, folder = str(network.labels), str(sent.folder)
    if is_wanted(DIRECT):
        clients = start(stack, "direct", folder, address(triton), network.name, labels, count=CORES)
        yield InProcess(
            name=DIRECT,
            group=Group.DIRECT,
            servers=[triton.process.pid],
            alone=clients[0],
            shared=clients,
            is_threaded=True,
        )
    for name, (group, transform) in BARE.items():
        if is_wanted(name):
            arguments = (folder, str(network.model), labels, transform)
            yield InProcess(
                name=name,
                group=group,
                servers=[],
                alone=start(stack, "bare", *arguments, "0")[0],  # with ONNX Runtime on every core
                shared=start(stack, "bare", *arguments, "1", count=CORES),
                is_threaded=False,
            )
