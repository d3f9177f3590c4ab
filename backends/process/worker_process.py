"""One worker process: a child with a channel, heartbeats, and limits of memory and of silence.

What is said to the worker is `backends.process.worker_session`'s business.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, Protocol

from backends.errors import ExecutionFailed, InstanceDied
from backends.limits import NO_MEMORY_LIMIT, ExecutionLimit, MemoryLimit
from backends.process.call_link import CallService
from backends.process.health.heartbeat import COUNT_BYTES, HEARTBEAT
from backends.process.health.liveness import Activity, Liveness
from backends.process.health.memory_usage import bytes_beyond
from backends.process.health.readiness import Readiness
from backends.process.interpreter import REFUSED_STATUS, VARIABLE, Interpreter
from backends.seam import Device
from repository.model import ModelVersion
from repository.process.channel import Channel
from repository.process.child import ChildProcess, ChildProgram
from repository.process.selector_loop import watch
from repository.sandbox import orphans
from repository.sandbox.confinement import Confinement

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_GRACE_SECS = 1.0
"""Between SIGTERM, upon which a hung worker says where it hangs, and SIGKILL."""
_MEMORY_LOOK_SECS = 0.5


class WorkerProgram(NamedTuple):
    """What a worker process runs: `main(channel fd, heartbeat fd, parent's pid)` of `module`, with
    `environment` beside what it inherits. `title`: what it is called in the process table."""

    module: str
    environment: tuple[tuple[str, str], ...] = ()
    title: str = "worker"
    confinement: Confinement | None = None
    calls: CallService | None = None
    interpreter: Interpreter | None = None
    memory: MemoryLimit = NO_MEMORY_LIMIT


WORKER = WorkerProgram("backends.process.worker")
FOREIGN = "backends.process.foreign"
"""What runs instead where the program names an interpreter, and becomes the worker there."""


class WorkerSpec(NamedTuple):
    """What every life of an instance has in common.

    `load_secs`: how long loading may take. `limit`: how long it may execute without progress.
    `heartbeat_secs`: how long an idle worker may stay silent (see
    `backends.process.health.liveness`).
    """

    version: ModelVersion
    device: Device
    name: str
    load_secs: float
    limit: ExecutionLimit
    heartbeat_secs: float
    program: WorkerProgram = WORKER

    @property
    def where(self) -> str:
        return f"model '{self.version.name}' version {self.version.number}"

    @property
    def output_bytes(self) -> int:
        """What one batch, or one response of a stream, may give; 0 for no limit."""
        confinement = self.program.confinement
        return confinement.output_bytes if confinement is not None else 0

    def too_large(self, size: int, what: str) -> ExecutionFailed:
        """What the requests are told that were given `size` bytes."""
        return ExecutionFailed(
            f"{self.where}: {what} has outputs of {size} bytes, more than "
            f"--worker-output-limit={self.output_bytes}; give less at once, or raise the limit"
        )

    def died(self, ending: str) -> InstanceDied:
        """What the requests inside a worker are told when it has ended."""
        return InstanceDied(
            f"{self.where}: the worker process of instance '{self.name}' {ending}; "
            "it is being restarted"
        )


class StreamReaders(Protocol):
    """Who reads what a worker streams."""

    def behind(self) -> bool:
        """Whether the model may be waiting for one of them; from any thread."""


class WorkerProcess:
    """One worker process, from its start to its end.

    Once it is reaped, the watching thread sets `ended`, calls `when_ended(self)`, and sets the
    event `gone`: whoever waited for it finds the end already known. One that hangs or is stopped,
    judged by its heartbeats and its `activity`, is killed. `release` must be called at the end.
    """

    def __init__(self, plan: WorkerSpec, when_ended: Callable[["WorkerProcess"], None]) -> None:
        """Start it; blocks for milliseconds. Raises `OSError` when there is no room for one."""
        self.started = time.monotonic()
        self.activity = Activity()
        self._plan = plan
        self._when_ended = when_ended
        self._liveness = Liveness(plan.limit, plan.heartbeat_secs)
        self._looked = self.started
        self._progress = 0
        self._readers: StreamReaders | None = None
        self._readiness = Readiness()
        self._scratch: Path | None = None
        try:
            program = ChildProgram(
                plan.program.module if plan.program.interpreter is None else FOREIGN,
                f"modelyard {plan.program.title} {plan.name}",
                plan.name,
                self._environment(),
            )
            self._child = ChildProcess(program, self._end)
            watch().call(self._start)
        except BaseException:
            self._remove_scratch()
            raise

    @property
    def ended(self) -> bool:
        return self._child.ended

    @property
    def gone(self) -> threading.Event:
        return self._child.gone

    @property
    def pid(self) -> int:
        return self._child.pid

    def loaded(self, readers: StreamReaders | None) -> None:
        """From now on an idle worker has to answer heartbeats, and a busy one to get on."""
        self._readers = readers
        self.activity.loading = False

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        self._child.signal(number)

    def kill(self, verdict: str) -> None:
        """Kill it; `verdict` is how its end will be told."""
        self._child.kill(verdict)

    def terminate(self) -> None:
        """End it by SIGTERM, and a second later by SIGKILL; never blocks."""
        self._child.terminate(_GRACE_SECS)

    def ask_ready(self) -> "Future[bool]":
        """What the model itself says of its readiness, soon or never; False once it has ended."""
        answer: Future[bool] = Future()
        watch().post(lambda: self._readiness.ask(answer, None if self.ended else self._heartbeats))
        return answer

    def ending(self) -> str:
        """How it ended, as `ChildProcess.ending` has it."""
        return self._child.ending()

    def refusal(self) -> str:
        """Why it could not run on its interpreter, after the end; "" if that is not why."""
        return self._child.last_line() if self._child.status == REFUSED_STATUS else ""

    def release(self) -> None:
        """Close the descriptors of this side, after `gone`; nobody may use `channel` any more."""
        self.channel.close()
        self._child.release()
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        confinement, scratch = self._plan.program.confinement, self._scratch
        if confinement is not None and scratch is not None:
            confinement.scratch.remove(scratch)

    def _environment(self) -> dict[str, str]:
        confinement = self._plan.program.confinement
        if confinement is None or confinement.is_off:
            return _environment(self._plan, os.environ)
        self._scratch = confinement.scratch.make()
        return _environment(self._plan, confinement.environment(os.environ, self._scratch))

    # On the thread of `watch()` from here on.

    def _start(self) -> None:
        with contextlib.ExitStack() as unless_started:
            ours, theirs = socket.socketpair()
            unless_started.enter_context(ours)
            self._heartbeats, their_heartbeats = socket.socketpair(type=socket.SOCK_SEQPACKET)
            unless_started.enter_context(self._heartbeats)
            with theirs, their_heartbeats:
                self._child.start((theirs.fileno(), their_heartbeats.fileno()))
            unless_started.pop_all()
        self.channel = Channel(ours)
        self._heartbeats.setblocking(False)
        watch().add(self._heartbeats.fileno(), self._receive_heartbeat)
        watch().every(self._liveness.interval_secs, self._look)
        if self._plan.program.memory.size:
            watch().every(_MEMORY_LOOK_SECS, self._check_memory)

    def _end(self) -> None:
        watch().stop(self._look)
        watch().stop(self._check_memory)
        watch().remove(self._heartbeats.fileno())
        self._heartbeats.close()
        self._readiness.answer(False)
        try:
            self._when_ended(self)
        finally:
            self.channel.shutdown()

    def _check_memory(self) -> None:
        limit = self._plan.program.memory
        if taken := bytes_beyond(self.pid, limit.size):
            self.kill(f"took {taken} bytes of memory, more than {limit} bytes, and was killed")

    def _look(self) -> None:
        """Is it alive and getting on? Then ask again."""
        orphans.end()  # of workers that live and do not adopt them
        now = time.monotonic()
        since_secs, self._looked = now - self._looked, now
        stopped = self._liveness.silent and self._child.state == "T"
        behind = self.activity.calls > 0 or (self._readers is not None and self._readers.behind())
        verdict = self._liveness.look(
            since_secs, self.activity, stopped=stopped, reader_behind=behind
        )
        if verdict and not self._child.is_condemned:
            self._child.terminate(_GRACE_SECS, verdict)
        with contextlib.suppress(OSError):
            self._heartbeats.send(HEARTBEAT)

    def _receive_heartbeat(self) -> None:
        self._liveness.answered()
        try:
            received = self._heartbeats.recv(64)
        except OSError:
            received = b""
        if not received:
            watch().remove(self._heartbeats.fileno())
            return
        progress = int.from_bytes(received[:COUNT_BYTES], "little")
        if progress != self._progress:
            self._progress = progress
            self.activity.progress += 1
        if len(received) > COUNT_BYTES:
            self._readiness.answer(received[COUNT_BYTES:] == b"1")


def _environment(plan: WorkerSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """The worker's: threads as the device allows, and no `__pycache__` in a version's folder,
    which the repository's watcher would take for a change."""
    environment = {name: str(plan.device.threads) for name in _THREAD_SETTINGS}
    environment |= inherited
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["MODELYARD_INSTANCE"] = plan.name
    if plan.program.interpreter is not None:
        environment |= _interpreter_environment(plan.program.interpreter, environment)
    return environment | dict(plan.program.environment)


def _interpreter_environment(
    interpreter: Interpreter, inherited: Mapping[str, str]
) -> dict[str, str]:
    """For `backends.process.foreign`; what only the interpreter is to see goes along as JSON."""
    root = Path(interpreter.python).parent.parent
    own = {"PATH": f"{root / 'bin'}:{inherited.get('PATH', '')}", "PYTHONNOUSERSITE": "1"}
    own |= dict.fromkeys(("VIRTUAL_ENV", "CONDA_PREFIX"), str(root))
    return {VARIABLE: json.dumps([interpreter.python, interpreter.lends_numpy, own])}
