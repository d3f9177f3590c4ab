"""SIGTERM at any moment of a start ends it: cleanly, and with everything that it has started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.server import ROOT, free_ports, write_identity

pytestmark = pytest.mark.slow

CLEAN = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""As a shell has them: 0 or 143."""

SLOW_MODEL = """
import sys, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        print("slow is initializing", file=sys.stderr, flush=True)
        time.sleep(600)

    def execute(self, requests):
        return []
"""
SLOW_CONFIG = (
    (
        'name: "slow"\nbackend: "python"\n'
        'input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 1 }}\n'
        'output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }}\n'
    )
    .replace("{{", "{")
    .replace("}}", "}")
)


class Start:
    """A server that has just been started; `said` is what it has printed so far."""

    def __init__(self, folder: Path, slow: bool, *before: str) -> None:
        """`before`: a command that starts the server."""
        self.folder = folder
        write_identity(folder / "models", "echo")
        if slow:
            (folder / "models/slow/1").mkdir(parents=True)
            (folder / "models/slow/config.pbtxt").write_text(SLOW_CONFIG)
            (folder / "models/slow/1/model.py").write_text(SLOW_MODEL)
        names = ("http", "grpc", "metrics", "admin")
        ports = zip(names, free_ports(4), strict=True)
        flags = [f"--{name}-port={port}" for name, port in ports]
        flags += [f"--model-repository={folder / 'models'}", f"--state-dir={folder / 'state'}"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "server.cli", "serve", *flags, TIMEOUT],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "STARTED_BY_TEST": str(folder)},
            )

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def maps(self, name: str) -> bool:
        """Whether a shared library of that name is loaded by now."""
        return _maps(self.process.pid, name)

    def children(self, *words: str) -> list[int]:
        """Processes that this start has begun, the gateway aside, with these words in a command."""
        return [
            pid for pid in _of_start(self.folder) if pid != self.process.pid and _has(pid, words)
        ]

    def wait_for(self, true: Callable[[], object]) -> None:
        until = time.monotonic() + 60
        while not true():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.001)


def _maps(pid: int, name: str) -> bool:
    try:
        return name in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def _of_start(folder: Path) -> Iterator[int]:
    wanted = f"STARTED_BY_TEST={folder}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            continue


def _has(pid: int, words: tuple[str, ...]) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return all(word in command for word in words)


MOMENTS: dict[str, Callable[[Start], object]] = {
    "the interpreter starts": lambda one: one.maps("python"),
    "it imports": lambda one: one.maps("uvloop"),
    "it imports the gateway": lambda one: one.maps("_multiarray_umath"),
    "the state folder is made": lambda one: (one.folder / "state" / "server.json").exists(),
    "a model is loaded": lambda one: "echo 1: LOADING" in one.said(),
    "a worker initializes a model": lambda one: "slow is initializing" in one.said(),
    "the control process is started": lambda one: one.children("server.control_process"),
    "the database is made": lambda one: (one.folder / "state" / "modelyard.db").exists(),
    "its tables are made": lambda one: (one.folder / "state" / "modelyard.db-wal").exists(),
    "its sockets are made": lambda one: (one.folder / "state" / "run" / "link.sock").exists(),
    "all is up": lambda one: "admin    http" in one.said(),
}
TIMEOUT = "--exit-timeout-secs=5"
SLOW = "a worker initializes a model"

SIGTERM_ALONE = {
    "the interpreter starts",
    "the control process is started",
    "the database is made",
    "its tables are made",
    "its sockets are made",
}
"""Python itself prints a traceback for a SIGINT before it runs any code of ours. Once the loop
runs, one function is called for both signals; that both are is seen when all is up."""

CASES = [
    pytest.param(moment, number, id=f"{moment}-{number.name}")
    for moment in MOMENTS
    for number in (signal.SIGTERM, signal.SIGINT)
    if number == signal.SIGTERM or moment not in SIGTERM_ALONE
]


@pytest.mark.parametrize(("moment", "number"), CASES)
def test_a_signal_during_the_start_ends_it_cleanly(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    one = Start(tmp_path, moment == SLOW)
    try:
        one.wait_for(lambda: MOMENTS[moment](one))
        one.process.send_signal(number)
        status = one.process.wait(40)
        until = time.monotonic() + 10
        while (left := one.children()) and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        one.process.kill()
        one.process.wait()
        for pid in one.children():
            os.kill(pid, signal.SIGKILL)
    clean = CLEAN if number is signal.SIGTERM else (0, 130, -signal.SIGINT)
    assert status in clean, one.said()
    assert "Traceback" not in one.said(), one.said()
    assert "This is a bug" not in one.said(), one.said()
    assert left == []


def test_the_first_process_of_a_container_ends_while_it_imports(tmp_path: Path) -> None:
    """The kernel passes no signal to process 1 that it has no handler for."""
    container = ("unshare", "--pid", "--fork", "--kill-child")
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace of processes can be made here")
    one = Start(tmp_path, False, *container)
    try:
        one.wait_for(lambda: one.children("serve") and _maps(one.children("serve")[0], "uvloop"))
        os.kill(one.children("serve")[0], signal.SIGTERM)
        status = one.process.wait(40)
    finally:
        one.process.kill()
        one.process.wait()
    assert status == 128 + signal.SIGTERM, one.said()
    assert one.said() == ""
