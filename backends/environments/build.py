"""Run one step of a build in a process of its own: confined, with a deadline and a bound of disk.

The process prints a line of JSON for each thing to tell: `{"progress": …}`, and `{"error": …}`
before it ends with another status than 0.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from repository.sandbox.enter import variables
from repository.sandbox.policy import Sandbox
from repository.tree import size_of

_ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from backends.environments.step_bounds import bound; bound(int(sys.argv[2])); "
    "from repository.sandbox.enter import enter_from_environment; enter_from_environment(); "
    "from {module} import main; sys.exit(main(*sys.argv[3:]))"
)
_LOOK_SECS = 1.0
_LINE_BYTES = 64 * 1024


class BuildFailed(Exception):
    """Why an environment cannot be made, for its model's owner to read."""


class BuildStep(NamedTuple):
    """`main(*arguments)` of `module`, which may write below `folder` and nowhere else.

    `sandbox`: what confines it, None for nothing. `until`: of `time.monotonic`. `environment`: all
    of it. `setting`: what sets `until`. `stopped`: whether nobody waits for it any more.
    """

    module: str
    arguments: tuple[str, ...]
    folder: Path
    sandbox: Sandbox | None
    environment: dict[str, str]
    until: float
    most_bytes: int
    setting: str = "--model-load-timeout-secs"
    stopped: Callable[[], bool] = lambda: False


def run_step(step: BuildStep, tell: Callable[[str], None]) -> None:
    """Run it to its end; blocks. Raises BuildFailed with its reason, and leaves no process, also
    where this one is killed meanwhile."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-B", "-c", _START.format(module=step.module)),
            *(str(_ROOT), str(os.getpid()), *step.arguments),
        ],
        env=step.environment | variables(step.sandbox),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        error, last = _followed(process, step, tell)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if error or process.returncode:
        raise BuildFailed(error or f"its build ended with status {process.returncode}: {last}")


def _followed(
    process: subprocess.Popen[bytes], step: BuildStep, tell: Callable[[str], None]
) -> tuple[str, str]:
    """The error that it told, and its last other line, once its output has ended."""
    assert process.stdout is not None
    error = last = ""
    rest = b""
    looked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(_LOOK_SECS):
                data = os.read(process.stdout.fileno(), _LINE_BYTES)
                if not data:
                    process.wait()
                    return error, last
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[-_LINE_BYTES:]
                for line in lines:
                    told = _read(line)
                    error = told.get("error", error)
                    last = told.get("line", last)
                    if "progress" in told:
                        tell(told["progress"])
            now = time.monotonic()
            if now > step.until:
                raise BuildFailed(f"it took longer than {step.setting} allows")
            if step.stopped():
                raise BuildFailed("it was stopped")
            if now - looked > _LOOK_SECS:
                looked = now
                _check_size(step)


def _check_size(step: BuildStep) -> None:
    if size_of(step.folder).disk_bytes > step.most_bytes:
        raise BuildFailed(
            f"it takes more than --environment-cache-limit={step.most_bytes} bytes of disk"
        )


def _read(line: bytes) -> dict[str, str]:
    with suppress(ValueError):
        told = json.loads(line)
        if isinstance(told, dict):
            return {str(key): str(value)[:4096] for key, value in told.items()}
    return {"line": line.decode(errors="replace").strip()[:1024]}


def say(**told: str) -> None:
    """On the side of the process: print one line for `run_step`."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
