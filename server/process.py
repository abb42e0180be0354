"""One tritonserver: started, waited for, stopped, with nothing left behind."""

import contextlib
import ctypes
import os
import resource
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from export.check.models import read_models
from python_models.preprocess.backlog import VARIABLE

from .checks import STACK_BYTES, find_problems, read_config
from .errors import ServerError
from .installation import Installation, backend_directory, find_installation
from .options import ServerOptions
from .running import note_server
from .signals import STOPPING, StoppedBySignal, signals_blocked, signals_ignored
from .triton_client import ADMIN_KEY_HEADER, TritonClient

DRAIN_TIMEOUT_S = 6  # for requests in flight, when the server is told to stop
STOP_TIMEOUT_S = 8  # then it is killed
KILL_TIMEOUT_S = 1  # for the system to clear away what was killed
POLL_S = 0.05
LOG_LINES = 5
GRPC_THREADS = "--grpc-infer-thread-count"
MIN_GRPC_THREADS, MAX_GRPC_THREADS = 2, 16  # Triton's own default, which an ensemble soon needs more than; 128 at most

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>: the signal that a process gets when its parent dies


class TritonServer:
    """A running tritonserver; as a context manager it is stopped on the way out.

    Raises ServerError, with every problem and its cure, where the machine or the repository is not fit.
    """

    def __init__(
        self, options: ServerOptions, tritonserver: Path | None = None, restart_of: "TritonServer | None" = None
    ) -> None:
        """A restart keeps the admin key and writes on in the log."""
        self.options = options
        self.installation = find_installation(tritonserver)
        problems = find_problems(options, self.installation)
        if problems:
            raise ServerError("\n".join(problems))
        # The folder and the shared memory bear one name, told from any other server's: both are removed after a kill.
        self._folder = Path(tempfile.mkdtemp(prefix=f"triton-of-{os.getpid()}-"))
        self._log: IO[bytes] | None = None
        admin_key: str = restart_of.client.admin_key if restart_of else secrets.token_urlsafe()
        self.client: TritonClient = TritonClient(
            options.client_host, options.http_port, options.grpc_port, options.metrics_port, admin_key
        )
        self._log_mode = "ab" if restart_of else "wb"
        try:
            with signals_blocked():
                self.process = self._start()
        except (StoppedBySignal, KeyboardInterrupt):  # heard at the end of the block, when Triton runs
            self.stop()
            raise

    def _start(self) -> "subprocess.Popen[bytes]":
        try:
            self.backlog.write_bytes(b"\0")
            backends = backend_directory(self.installation, self._folder)
            if self.options.log is not None:
                self._log = _open_log(self.options.log, self._log_mode)
            note_server(self._folder, self.options, self.client.admin_key)
            return subprocess.Popen(
                [
                    *command_line(self.options, self.installation, backends, self._folder.name),
                    *restrictions(self.options, self.client.admin_key),
                    *self.options.triton_arguments,
                ],
                env={**self.installation.environment(), VARIABLE: str(self.backlog)},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C reaches only us, and the stubs can be found by their group
                preexec_fn=_prepare_child,
            )
        except Exception:
            self._remove_files()
            raise

    def __enter__(self) -> "TritonServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def backlog(self) -> Path:
        """The file of one byte, not 0 where too many requests wait behind `preprocess`."""
        return self._folder / "backlog"

    def wait_until_ready(self) -> None:
        """Return once every model of the repository is ready.

        Raises ServerError with the model's own message where one fails to load, where Triton ends, or after
        `ready_timeout_s`.
        """
        deadline = time.monotonic() + self.options.ready_timeout_s
        while not self.client.is_live():
            if self.process.poll() is not None:
                raise ServerError(f"Triton ended with status {self.exit_status} before it was ready{self._log_hint()}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"Triton: expected it to be ready within {self.options.ready_timeout_s:g} s, it was not: give "
                    f"--ready-timeout-s more where the machine is slow{self._log_hint()}"
                )
            time.sleep(POLL_S)
        self._check_models()

    def _check_models(self) -> None:
        """Triton opens its ports when all models are loaded or have failed; the index has their reasons."""
        status, models = self.client.index()
        if status != 200:  # a server that took the port at the same moment asks for its own key
            raise ServerError(
                f"port {self.options.http_port} (http): expected the server just started, got another's answer, HTTP "
                f"status {status}: give --http-port another number"
            )
        failed = {
            # A Python model's reason ends in a traceback, which stands in Triton's log too.
            model["name"]: model.get("reason", "not loaded").split("\n\nAt:\n")[0]
            for model in models
            if model.get("state") != "READY"
        }
        # An ensemble fails with any of its steps: that step's own message is the one to read.
        causes = {name: reason for name, reason in failed.items() if not self._is_ensemble(name)} or failed
        if causes:
            raise ServerError("\n".join(f"model {name} cannot be loaded: {reason}" for name, reason in causes.items()))

    def _is_ensemble(self, model: str) -> bool:
        path = self.options.repository / model / "config.pbtxt"
        return path.is_file() and read_config(path).platform == "ensemble"

    def _log_hint(self) -> str:
        """Where Triton's log is in a file: its name, and its last lines, in which the cause stands."""
        if self.options.log is None:
            return ""
        last = self.options.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
        return "\n".join([f"; the end of its log {self.options.log}:", *last])

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """Have Triton finish its requests and end, within 10 s, leave no process and no shared memory behind.

        Returns its exit status; does nothing where it has been stopped before.
        """
        with signals_ignored():
            if self.process.poll() is None:
                self.process.send_signal(signal_number)
                try:
                    self.process.wait(timeout=STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
            self.end_stubs()
            self._remove_files()
        return self.exit_status

    @property
    def exit_status(self) -> int:
        code: int = self.process.returncode
        return 128 - code if code < 0 else code

    def end_stubs(self) -> None:
        """Every stub is in the group that Triton led: end those that outlived it, and see them gone."""
        deadline = time.monotonic() + KILL_TIMEOUT_S
        with contextlib.suppress(ProcessLookupError):  # raised once the group is empty
            while time.monotonic() < deadline:
                os.killpg(self.process.pid, signal.SIGKILL)
                time.sleep(POLL_S)

    def _remove_files(self) -> None:
        for leftover in Path("/dev/shm").glob(f"{self._folder.name}*"):
            leftover.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._log is not None:
            self._log.close()


def _open_log(path: Path, mode: str) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open(mode)
    except OSError as error:
        raise ServerError(f"log: expected a file that can be written, got {path}: {error.strerror}") from error


def command_line(
    options: ServerOptions, installation: Installation, backends: Path, shared_memory_prefix: str
) -> list[str]:
    """Everything is loaded at the start, and models can be loaded and unloaded later (explicit model control)."""
    command = [
        str(installation.tritonserver),
        f"--model-repository={options.repository}",
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--exit-on-error=false",  # so that a model's own load error can be asked for, and shown
        f"--exit-timeout-secs={DRAIN_TIMEOUT_S}",
        f"--http-address={options.host}",
        f"--http-port={options.http_port}",
        f"--grpc-address={options.host}",
        f"--grpc-port={options.grpc_port}",
        f"--metrics-address={options.host}",
        f"--metrics-port={options.metrics_port}",
        f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix}",
        "--log-info=false",
    ]
    models, _ = read_models(options.repository, options.variant)
    if all(model.is_complete for model in models.values()):
        # Else each load of a Python model starts a process to ask what it would complete, and ends it, with a pause of
        # 1 s: a start takes 0.7 s rather than 2, a model whose process died is back after 0.2 s rather than 1.4.
        command.append("--disable-auto-complete-config")
    if not Path("/dev/nvidiactl").exists():  # no driver: the GPU metrics would only complain
        command.append("--allow-gpu-metrics=false")
    if not installation.is_wheel and installation.takes_option(GRPC_THREADS):  # the wheel's does not
        command.append(f"{GRPC_THREADS}={min(max(os.cpu_count() or 1, MIN_GRPC_THREADS), MAX_GRPC_THREADS)}")
    return command


def restrictions(options: ServerOptions, admin_key: str) -> list[str]:
    """Ask for a key where code is run or memory read here: whoever may load a model may bring its model.py along.

    Over HTTP on loopback too, because any web page can have a browser on this machine send such a request.
    """
    protocols = f"model-repository,shared-memory,trace,logging:{ADMIN_KEY_HEADER}={admin_key}"
    over_http = [f"--http-restricted-api={protocols}"]
    return over_http if options.is_loopback else [*over_http, f"--grpc-restricted-protocol={protocols}"]


def _prepare_child() -> None:
    """Between fork and exec: hear signals, take a larger stack, and end with us even where we are killed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
