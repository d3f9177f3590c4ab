"""The operating system's side of one worker: spawned, watched, killed, mourned.

Everything that touches the process id happens on the `deaths` watch, which also reaps it; so no
signal can reach a stranger that inherited the number. What is said to the worker is
`backends.host.worker_session`'s business.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from backends.errors import ExecutionFailed, InstanceDied
from backends.host.channel import Channel
from backends.host.heartbeat import COUNT_BYTES, HEARTBEAT
from backends.host.liveness import Activity, Liveness
from backends.host.memory_usage import exceeds
from backends.host.output import PipeLogger
from backends.host.readiness import Readiness
from backends.host.selector_loop import deaths, prints
from backends.limits import ExecutionLimit
from backends.seam import Device
from repository.model import ModelVersion
from repository.process_state import process_state
from repository.sandbox import orphans
from repository.sandbox.confinement import Confinement

_ROOT = Path(__file__).resolve().parents[2]
# Not `-m`: user code that spawns processes of its own must not find our main module to rerun.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from repository.sandbox.enter import enter_told; enter_told(); "
    "from {module} import main; main(*map(int, sys.argv[2:5]))"
)
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LAST_WORDS_SECS = 0.2
_HANG_UP_SECS = 1.0
_KILL_SECS = 1.0
"""Between SIGTERM, upon which a hung worker says where it hangs, and SIGKILL."""
REAP_SECS = 10.0
"""How long a killed process may take to end: one that waits for a disk or a driver that does not
answer (state D) ends when that does, and nobody may wait for it as long."""
_WEIGH_SECS = 0.5


class WorkerProgram(NamedTuple):
    """What a worker process runs: `main(channel fd, pulse fd, parent's pid)` of `module`, with
    `environment` beside what it inherits. `says`: what it is called in the process table."""

    module: str
    environment: tuple[tuple[str, str], ...] = ()
    says: str = "worker"
    confinement: Confinement | None = None


WORKER = WorkerProgram("backends.host.worker")


class WorkerSpec(NamedTuple):
    """What every life of an instance has in common.

    `load_secs`: how long loading may take. `limit`: how long it may execute without progress.
    `pulse_secs`: how long an idle worker may stay silent (see `backends.host.liveness`).
    """

    version: ModelVersion
    device: Device
    name: str
    load_secs: float
    limit: ExecutionLimit
    pulse_secs: float
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
    """One worker process, from its spawning to its end.

    Once it is reaped, the watching thread sets `ended`, calls `when_dead(self)`, and sets the
    event `dead`: whoever waited for it finds the death already known. One that hangs or is
    stopped, judged by its heartbeats and its `activity`, is killed. `release` must be called at
    the end.
    """

    def __init__(self, plan: WorkerSpec, when_dead: Callable[["WorkerProcess"], None]) -> None:
        """Spawn it; blocks for milliseconds. Raises `OSError` when there is no room for one."""
        self.ended = False
        self.dead = threading.Event()
        self.started = time.monotonic()
        self.activity = Activity()
        self._plan = plan
        self._when_dead = when_dead
        self._verdict = ""
        self._liveness = Liveness(plan.limit, plan.pulse_secs)
        self._looked = self.started
        self._told_progress = 0
        self._readers: StreamReaders | None = None
        self._readiness = Readiness()
        self._scratch: Path | None = None
        try:
            deaths().call(self._spawn)
        except BaseException:
            self._remove_scratch()
            raise

    @property
    def pid(self) -> int:
        return self._popen.pid

    def loaded(self, readers: StreamReaders | None) -> None:
        """From now on an idle worker has to answer heartbeats, and a busy one to get on."""
        self._readers = readers
        self.activity.loading = False

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        deaths().post(lambda: self._signal(number))

    def condemn(self, verdict: str) -> None:
        """Kill it; `verdict` is how its end will be told."""
        self._verdict = self._verdict or verdict
        self.signal(signal.SIGKILL)

    def ask_ready(self) -> "Future[bool]":
        """What the model itself says of its readiness, soon or never; False once it has ended."""
        answer: Future[bool] = Future()
        deaths().post(lambda: self._readiness.ask(answer, None if self.ended else self._pulse))
        return answer

    def kill(self) -> None:
        """End it by SIGTERM, and a second later by SIGKILL; never blocks."""
        deaths().post(self._terminate)

    def ending(self) -> str:
        """How it ended, with its last words, as the end of a sentence about it. A worker that
        hung up without dying is killed first."""
        if not self.dead.wait(_HANG_UP_SECS):
            self.condemn("closed its connection and was killed")
            if not self.dead.wait(REAP_SECS):
                return f"{self._verdict}, and does not end (state {process_state(self.pid)})"
        self._errors_ended.wait(_LAST_WORDS_SECS)
        words = self._errors.lines.last
        how = self._verdict or _status_text(self._popen.returncode)
        return how + (f"; last line on stderr: {words!r}" if words else "")

    def release(self) -> None:
        """Close the descriptors of this side, after `dead`; nobody may use `channel` any more."""
        self.channel.close()
        self._output_ended.wait(_LAST_WORDS_SECS)
        self._errors_ended.wait(_LAST_WORDS_SECS)
        with contextlib.suppress(TimeoutError):  # a log nobody reads: it is done when somebody does
            prints().call(self._close_pipes, REAP_SECS)
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        confinement, scratch = self._plan.program.confinement, self._scratch
        if confinement is not None and scratch is not None:
            confinement.scratch.remove(scratch)

    # On the threads of `backends.host.selector_loop` from here on.

    def _spawn(self) -> None:
        with contextlib.ExitStack() as unless_spawned:
            ours, theirs = socket.socketpair()
            unless_spawned.enter_context(ours)
            self._pulse, their_pulse = socket.socketpair(type=socket.SOCK_SEQPACKET)
            unless_spawned.enter_context(self._pulse)
            with theirs, their_pulse:
                self._popen = self._start((theirs.fileno(), their_pulse.fileno()))
            unless_spawned.callback(self._popen.wait)
            unless_spawned.callback(self._popen.kill)
            self._pidfd = os.pidfd_open(self._popen.pid)
            unless_spawned.pop_all()
        self.channel = Channel(ours)
        self._pulse.setblocking(False)
        deaths().add(self._pidfd, self._reap)
        deaths().add(self._pulse.fileno(), self._hear_pulse)
        deaths().beat(self._liveness.interval_secs, self._look)
        self._output_ended, self._errors_ended = threading.Event(), threading.Event()
        self._listen(self._popen.stdout, logging.INFO, self._output_ended)
        self._errors = self._listen(self._popen.stderr, logging.WARNING, self._errors_ended)
        if self._memory_limit:
            deaths().beat(_WEIGH_SECS, self._weigh)

    def _start(self, fds: tuple[int, int]) -> subprocess.Popen[bytes]:
        program = self._plan.program
        name = f"modelyard {program.says} {self._plan.name}"
        numbers = [*map(str, fds), str(os.getpid())]
        return subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", _START.format(module=program.module)),
                *(str(_ROOT), *numbers, name),
            ],
            bufsize=0,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        confinement = self._plan.program.confinement
        if confinement is None or confinement.is_off:
            return _environment(self._plan, os.environ)
        self._scratch = confinement.scratch.make()
        return _environment(self._plan, confinement.environment(os.environ, self._scratch))

    def _listen(self, pipe: IO[bytes] | None, level: int, ended: threading.Event) -> PipeLogger:
        assert pipe is not None
        fd = pipe.fileno()
        pump = PipeLogger(fd, level, self._plan.name)

        def when_readable() -> None:
            if not pump.pump(time.monotonic()):
                prints().remove(fd)
                ended.set()

        prints().post(lambda: prints().add(fd, when_readable))
        return pump

    def _close_pipes(self) -> None:
        for pipe in (self._popen.stdout, self._popen.stderr):
            assert pipe is not None
            prints().remove(pipe.fileno())
            pipe.close()

    def _signal(self, number: int) -> None:
        if not self.ended:
            os.kill(self._popen.pid, number)

    def _reap(self) -> None:
        """The process has ended: take its whole group with it, then say so."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        orphans.end()
        deaths().rest(self._look)
        deaths().rest(self._kill)
        deaths().rest(self._weigh)
        deaths().remove(self._pidfd)
        deaths().remove(self._pulse.fileno())
        os.close(self._pidfd)
        self._pulse.close()
        self.ended = True
        self._readiness.answer(False)
        try:
            self._when_dead(self)
        finally:
            self.dead.set()
            self.channel.shutdown()

    @property
    def _memory_limit(self) -> int:
        confinement = self._plan.program.confinement
        return confinement.memory_bytes if confinement is not None else 0

    def _weigh(self) -> None:
        limit = self._memory_limit
        if exceeds(self._popen.pid, limit):
            self.condemn(f"took more than --worker-memory-limit={limit} bytes and was killed")

    def _look(self) -> None:
        """Is it alive and getting on? Then ask again."""
        orphans.end()  # of workers that live and do not adopt them
        now = time.monotonic()
        since_secs, self._looked = now - self._looked, now
        stopped = self._liveness.silent and process_state(self._popen.pid) == "T"
        behind = self._readers is not None and self._readers.behind()
        verdict = self._liveness.look(
            since_secs, self.activity, stopped=stopped, reader_behind=behind
        )
        if verdict and not self._verdict:
            self._verdict = verdict
            self._terminate()
        with contextlib.suppress(OSError):
            self._pulse.send(HEARTBEAT)

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)
        if not self.ended:
            deaths().beat(_KILL_SECS, self._kill)

    def _kill(self) -> None:
        deaths().rest(self._kill)
        self._signal(signal.SIGKILL)

    def _hear_pulse(self) -> None:
        self._liveness.answered()
        try:
            heard = self._pulse.recv(64)
        except OSError:
            heard = b""
        if not heard:
            deaths().remove(self._pulse.fileno())
            return
        if (told := int.from_bytes(heard[:COUNT_BYTES], "little")) != self._told_progress:
            self._told_progress = told
            self.activity.progress += 1
        if len(heard) > COUNT_BYTES:
            self._readiness.answer(heard[COUNT_BYTES:] == b"1")


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by signal {-status} ({names.get(-status, 'unnamed')})"


def _environment(plan: WorkerSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """The worker's: threads as the device allows, and no `__pycache__` in a version's folder,
    which the repository's watcher would take for a change."""
    environment = {name: str(plan.device.threads) for name in _THREAD_SETTINGS}
    environment |= inherited
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["MODELYARD_INSTANCE"] = plan.name
    return environment | dict(plan.program.environment)
