"""Processes that run `python -m server.cli` for tests, forked from one that has imported it.

Importing took 0.8 of the 1.1 CPU seconds of a server's start. What runs is the same program with
arguments, environment, folder and streams of its own; what it starts (control process, checks,
workers) are new interpreters as ever. Tests of the start itself start a new one as well.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent.parent
_PROGRAM = Path(__file__).with_name("preloaded_program.py")
_AT_THE_START = ("PYTHON", "LD_", "MALLOC_", "OMP_", "OPENBLAS_")
"""Beginnings of variables that an interpreter or a library reads once, when it starts."""
_OURS = ("PYTHONPATH", "OMP_WAIT_POLICY")
"""Those that a forked process is given, and the one that all tests have (`tests/conftest.py`)."""

Environment = dict[str, str]
Streams = tuple[int, int, int]


class Process(Protocol):
    """What tests use of `subprocess.Popen`."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start(
    arguments: Sequence[str],
    environment: Environment,
    folder: Path,
    log: int,
    new_session: bool = False,
) -> Process:
    """`modelyard ARGUMENTS` with `log`, a descriptor, as both outputs and nothing to read."""
    with Path(os.devnull).open("rb") as nothing:
        order = Order(list(arguments), environment, str(folder), new_session)
        return _started(order, (nothing.fileno(), log, log))


def run(
    arguments: Sequence[str],
    environment: Environment,
    folder: Path,
    stdin: str = "",
    timeout: float = 180.0,
) -> "subprocess.CompletedProcess[str]":
    """`modelyard ARGUMENTS` to its end."""
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(stdin)
        given.seek(0)
        order = Order(list(arguments), environment, str(folder))
        process = _started(order, (given.fileno(), out.fileno(), err.fileno()))
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(order.arguments, status, out.read(), err.read())


@dataclass(frozen=True)
class Order:
    """A process to start, by its command line, environment and folder."""

    arguments: list[str]
    environment: Environment
    folder: str
    new_session: bool = False

    def needs_new_interpreter(self) -> bool:
        """True where the environment differs from ours in what is read only at the start."""
        return any(
            self.environment.get(name) != os.environ.get(name)
            for name in {*self.environment, *os.environ}
            if name.startswith(_AT_THE_START) and name not in _OURS
        )


def _started(order: Order, streams: Streams) -> Process:
    if not order.needs_new_interpreter():
        return _preloaded().start(order, streams)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, "-m", "server.cli", *order.arguments],
        cwd=order.folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=order.environment,
        start_new_session=order.new_session,
    )


@cache
def _preloaded() -> "_Preloaded":
    """One for this process of tests, with which it ends."""
    return _Preloaded()


class _Preloaded:
    """The process that has imported everything, and what it reports of those that it forked."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._started: list[int] = []
        self._statuses: dict[int, int] = {}
        self._lock = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._channel.close()
        self._process.wait(60)

    def start(self, order: Order, streams: Streams) -> Process:
        with self._lock:
            with tempfile.TemporaryFile() as described:
                described.write(json.dumps(asdict(order)).encode())
                described.seek(0)
                socket.send_fds(self._channel, [b"fork"], [described.fileno(), *streams])
            while not self._started:
                self._receive()
            return _Forked(self._started.pop(), self)

    def status(self, pid: int, seconds: float) -> int | None:
        """The exit status, as `Popen.returncode` has it; None if it still runs after `seconds`."""
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                while select.select([self._channel], [], [], 0)[0]:
                    self._receive()
                if pid in self._statuses:
                    return self._statuses[pid]
            left = until - time.monotonic()
            if left <= 0:
                return None
            select.select([self._channel], [], [], min(left, 0.5))

    def _receive(self) -> None:
        message = self._channel.recv(1024)
        assert message, "the preloaded process has ended"
        kind, pid, status = json.loads(message)
        if kind == "started":
            self._statuses.pop(pid, None)  # of an earlier process of the same number
            self._started.append(pid)
        else:
            self._statuses[pid] = status


class _Forked:
    """A process that the preloaded one has forked, as `subprocess.Popen` shows its own."""

    def __init__(self, pid: int, by: _Preloaded) -> None:
        self.pid = pid
        self._by = by
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._look(float("inf") if timeout is None else timeout)
        if status is None:
            raise subprocess.TimeoutExpired("modelyard", timeout or 0)
        return status

    def _look(self, seconds: float) -> int | None:
        if self.returncode is None:
            self.returncode = self._by.status(self.pid, seconds)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
