"""The operating system's side of one worker: spawned, watched, killed, mourned.

Everything that touches the process id happens on the `deaths` watch, which also reaps it; so no
signal can reach a stranger that inherited the number. What is said to the worker is
`backends.host.conversation`'s business.
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
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from backends.errors import InstanceDied
from backends.host.channel import Channel
from backends.host.output import Pump
from backends.host.watch import deaths, prints
from backends.seam import Device
from repository.model import ModelVersion

_ROOT = Path(__file__).resolve().parents[2]
# Not `-m`: user code that spawns processes of its own must not find our main module to rerun.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; "
    "main(*map(int, sys.argv[2:5]))"
)
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LAST_WORDS_SECS = 0.2
_HANG_UP_SECS = 1.0
_MISSED_PULSES = 3


class Program(NamedTuple):
    """What a worker process runs: `main(channel fd, pulse fd, parent's pid)` of `module`, with
    `environment` beside what it inherits. `says`: what it is called in the process table."""

    module: str
    environment: tuple[tuple[str, str], ...] = ()
    says: str = "worker"


WORKER = Program("backends.host.worker")


class Plan(NamedTuple):
    """What every life of an instance has in common.

    `load_secs`: how long loading may take. `execute_secs`: how long one execution may take, None
    for no limit. `pulse_secs`: how long an idle worker may stay silent; while it executes, it
    need not answer, because user code may rightly hold the GIL.
    """

    version: ModelVersion
    device: Device
    name: str
    load_secs: float
    execute_secs: float | None
    pulse_secs: float
    program: Program = WORKER

    @property
    def where(self) -> str:
        return f"model '{self.version.name}' version {self.version.number}"

    def died(self, ending: str) -> InstanceDied:
        """What the requests inside a worker are told when it has ended."""
        return InstanceDied(
            f"{self.where}: the worker process of instance '{self.name}' {ending}; "
            "it is being restarted"
        )


class Process:
    """One worker process, from its spawning to its end.

    Once it is reaped, the watching thread sets `ended`, calls `when_dead(self)`, and sets the
    event `dead`: whoever waited for it finds the death already known. While `excused`, it need
    not answer heartbeats. `release` must be called at the end.
    """

    def __init__(self, plan: Plan, when_dead: Callable[["Process"], None]) -> None:
        """Spawn it; blocks for milliseconds. Raises `OSError` when there is no room for one."""
        self.ended = False
        self.dead = threading.Event()
        self.started = time.monotonic()
        self.excused = True
        self._plan = plan
        self._when_dead = when_dead
        self._verdict = ""
        self._unanswered = 0
        deaths().call(self._spawn)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def watch_pulse(self) -> None:
        """From now on an idle worker has to answer heartbeats."""
        self.excused = False
        deaths().post(self._start_pulse)

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        deaths().post(lambda: self._signal(number))

    def condemn(self, verdict: str) -> None:
        """Kill it; `verdict` is how its end will be told."""
        self._verdict = self._verdict or verdict
        self.signal(signal.SIGKILL)

    def ending(self) -> str:
        """How it ended, with its last words, as the end of a sentence about it. A worker that
        hung up without dying is killed first."""
        if not self.dead.wait(_HANG_UP_SECS):
            self.condemn("closed its connection and was killed")
            self.dead.wait()
        self._errors_ended.wait(_LAST_WORDS_SECS)
        words = self._errors.lines.last
        how = self._verdict or _status_text(self._popen.returncode)
        return how + (f"; last line on stderr: {words!r}" if words else "")

    def release(self) -> None:
        """Close the descriptors of this side, after `dead`; nobody may use `channel` any more."""
        self.dead.wait()
        self.channel.close()
        self._output_ended.wait(_LAST_WORDS_SECS)
        self._errors_ended.wait(_LAST_WORDS_SECS)
        prints().call(self._close_pipes)

    # On the threads of `backends.host.watch` from here on.

    def _spawn(self) -> None:
        with contextlib.ExitStack() as unless_spawned:
            ours, theirs = socket.socketpair()
            unless_spawned.enter_context(ours)
            self._pulse, their_pulse = socket.socketpair()
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
        self._output_ended, self._errors_ended = threading.Event(), threading.Event()
        self._listen(self._popen.stdout, logging.INFO, self._output_ended)
        self._errors = self._listen(self._popen.stderr, logging.WARNING, self._errors_ended)

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
            env=_environment(self._plan),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            start_new_session=True,
        )

    def _listen(self, pipe: IO[bytes] | None, level: int, ended: threading.Event) -> Pump:
        assert pipe is not None
        fd = pipe.fileno()
        pump = Pump(fd, level, self._plan.name)

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
        deaths().rest(self._send_pulse)
        deaths().remove(self._pidfd)
        deaths().remove(self._pulse.fileno())
        os.close(self._pidfd)
        self._pulse.close()
        self.ended = True
        try:
            self._when_dead(self)
        finally:
            self.dead.set()
            self.channel.shutdown()

    def _start_pulse(self) -> None:
        if not self.ended:
            deaths().beat(self._plan.pulse_secs / _MISSED_PULSES, self._send_pulse)

    def _send_pulse(self) -> None:
        if self.excused:
            self._unanswered = 0
            return
        if self._unanswered >= _MISSED_PULSES:
            secs = self._plan.pulse_secs
            self.condemn(f"was idle, answered no heartbeat for {secs:g} s and was killed")
        self._unanswered += 1
        with contextlib.suppress(OSError):
            self._pulse.send(b".")

    def _hear_pulse(self) -> None:
        self._unanswered = 0
        try:
            heard = self._pulse.recv(4096)
        except OSError:
            heard = b""
        if not heard:
            deaths().remove(self._pulse.fileno())


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by signal {-status} ({names.get(-status, 'unnamed')})"


def _environment(plan: Plan) -> dict[str, str]:
    """The worker's: threads as the device allows, and no `__pycache__` in a version's folder,
    which the repository's watcher would take for a change."""
    environment = {name: str(plan.device.threads) for name in _THREAD_SETTINGS} | os.environ
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["MODELYARD_INSTANCE"] = plan.name
    return environment | dict(plan.program.environment)
