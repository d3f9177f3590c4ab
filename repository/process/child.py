"""Start, watch and end one child process.

Everything that touches the process id happens on the thread of `watch()`, which also reaps it: no
signal can reach a stranger that inherited the number.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from repository.process.output import PipeLogger
from repository.process.selector_loop import outputs, watch
from repository.process.state import process_state
from repository.sandbox import orphans

ROOT = Path(__file__).resolve().parents[2]
REAP_SECS = 10.0
"""How long a killed process may take to end: one that waits for a disk or a driver that does not
answer (state D) ends when that does, and nobody may wait for it as long."""

# Not `-m`: user code that spawns processes of its own must not find our main module to rerun. And
# `-P`: the current folder may be a model repository, of which nothing is imported.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from repository.sandbox.enter import enter_from_environment; enter_from_environment(); "
    "from repository.process.collector import no_collection\n"
    "with no_collection(): from {module} import main\n"
    "sys.exit(main(*map(int, sys.argv[2:-1])))"
)
_LAST_LINES_SECS = 0.2
_HANG_UP_SECS = 1.0


class ChildProgram(NamedTuple):
    """What a child process runs: `main(*descriptors, parent's process id)` of `module`.

    `title`: its last argument, which the process table shows. `log_name`: under which its lines
    come into our log; "" leaves it our own stdout and stderr. `environment`: all of it.
    """

    module: str
    title: str
    log_name: str
    environment: Mapping[str, str]


class ChildProcess:
    """One child process, from its start to its end.

    Once it has been reaped, its whole process group is killed and the watching thread sets `ended`,
    calls `when_ended()`, and sets the event `gone`: whoever waited for it finds the end already
    known. `release` must be called at the end.
    """

    def __init__(self, program: ChildProgram, when_ended: Callable[[], None]) -> None:
        self.ended = False
        self.gone = threading.Event()
        self._program = program
        self._when_ended = when_ended
        self._verdict = ""
        self._logged: list[_LoggedPipe] = []

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def status(self) -> int:
        """As `subprocess.Popen.returncode` has it, after the end."""
        return self._popen.returncode

    @property
    def outcome(self) -> str:
        """How it ended, after the end: "exited with status 3", or why it was killed."""
        return self._verdict or exit_text(self.status)

    @property
    def is_condemned(self) -> bool:
        """Whether somebody already decided on its end, and said why."""
        return bool(self._verdict)

    @property
    def state(self) -> str:
        """As `process_state` has it; "" once it has ended."""
        return "" if self.ended else process_state(self.pid)

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives; from any thread."""
        watch().post(lambda: self._signal(number))

    def kill(self, verdict: str = "") -> None:
        """Kill it, from any thread; `verdict`, the first one given, is how its end will be told:
        "took too much memory and was killed"."""
        self._verdict = self._verdict or verdict
        self.signal(signal.SIGKILL)

    def terminate(self, grace_secs: float, verdict: str = "") -> None:
        """End it by SIGTERM, and `grace_secs` later by SIGKILL; never blocks, from any thread."""
        self._verdict = self._verdict or verdict
        watch().post(lambda: self._terminate(grace_secs))

    def ending(self) -> str:
        """How it ended, with its last line on stderr, as the end of a sentence about it. One that
        closed its connection without ending is killed first; blocks for 11 s at most."""
        if not self.gone.wait(_HANG_UP_SECS):
            self.kill("closed its connection and was killed")
            if not self.gone.wait(REAP_SECS):
                return f"{self._verdict}, and does not end (state {self.state})"
        last = self.last_line()
        return self.outcome + (f"; last line on stderr: {last!r}" if last else "")

    def release(self) -> None:
        """Stop reading what it printed, after `gone`, also where what it started still holds its
        pipes. Blocks while a log takes no lines, for 10 s at most: it is done when it does."""
        for pipe in self._logged:
            pipe.ended.wait(_LAST_LINES_SECS)
        with contextlib.suppress(TimeoutError):
            outputs().call(self._close_pipes, REAP_SECS)

    def last_line(self) -> str:
        """Its last line on stderr, after `gone`."""
        if not self._logged:
            return ""
        errors = self._logged[-1]
        errors.ended.wait(_LAST_LINES_SECS)
        return errors.logger.lines.last

    def _close_pipes(self) -> None:
        for pipe in self._logged:
            pipe.close()

    # On the thread of `watch()` from here on.

    def start(self, descriptors: Sequence[int]) -> None:
        """Start it, with copies of `descriptors`; takes milliseconds. Raises `OSError` when there
        is no room for one."""
        piped = subprocess.PIPE if self._program.log_name else None
        numbers = [*map(str, descriptors), str(os.getpid())]
        self._popen = subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", _START.format(module=self._program.module)),
                *(str(ROOT), *numbers, self._program.title),
            ],
            bufsize=0,
            env=dict(self._program.environment),
            stdin=subprocess.DEVNULL,
            stdout=piped,
            stderr=piped,
            pass_fds=tuple(descriptors),
            start_new_session=True,  # Ctrl-C is the server's to answer
        )
        with contextlib.ExitStack() as unless_watched:
            unless_watched.callback(self._popen.wait)
            unless_watched.callback(self._popen.kill)
            self._pidfd = os.pidfd_open(self._popen.pid)
            unless_watched.pop_all()
        watch().add(self._pidfd, self._reap)
        if piped is not None:
            self._log(self._popen.stdout, logging.INFO)
            self._log(self._popen.stderr, logging.WARNING)

    def _log(self, stream: IO[bytes] | None, level: int) -> None:
        assert stream is not None
        pipe = _LoggedPipe(
            stream,
            PipeLogger(stream.fileno(), level, self._program.log_name),
            threading.Event(),
        )
        self._logged.append(pipe)
        descriptor = stream.fileno()
        outputs().post(lambda: outputs().add(descriptor, pipe.read))

    def _signal(self, number: int) -> None:
        if not self.ended:
            os.kill(self._popen.pid, number)

    def _terminate(self, grace_secs: float) -> None:
        self._signal(signal.SIGTERM)
        if not self.ended:
            watch().every(grace_secs, self._kill)

    def _kill(self) -> None:
        watch().stop(self._kill)
        self._signal(signal.SIGKILL)

    def _reap(self) -> None:
        """The process has ended: take its whole group with it, then say so."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        orphans.end()
        watch().stop(self._kill)
        watch().remove(self._pidfd)
        os.close(self._pidfd)
        self.ended = True
        try:
            self._when_ended()
        finally:
            self.gone.set()


class _LoggedPipe(NamedTuple):
    """One of a child's output pipes; `ended` is set behind its last line."""

    stream: IO[bytes]
    logger: PipeLogger
    ended: threading.Event

    def read(self) -> None:
        """On the thread of `outputs()`."""
        if not self.logger.pump(time.monotonic()):
            self.close()
            self.ended.set()

    def close(self) -> None:
        """On the thread of `outputs()`."""
        if not self.stream.closed:
            outputs().remove(self.stream.fileno())
            self.stream.close()


def exit_text(status: int) -> str:
    """How a process ended, as the end of a sentence about it: "exited with status 3"."""
    if status >= 0:
        return f"exited with status {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by signal {-status} ({names.get(-status, 'unnamed')})"
