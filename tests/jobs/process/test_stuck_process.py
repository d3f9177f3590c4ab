"""A job's process that a debugger holds does not end when it is killed; nobody waits for ever."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.process.ending import JobEnd
from jobs.process.job_process import JobProcess
from jobs.process.limits import ProcessLimits
from jobs.process.program import ROOT, JobProgram

WAIT_S = 60.0
LIMITS = ProcessLimits(
    memory_bytes=256 << 20,
    cpu_secs=60,
    wall_secs=60,
    disk_bytes=64 << 20,
    output_bytes=64 << 20,
    grace_secs=0.5,
)
SEIZE = """
import ctypes, sys
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
print(ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True)  # PTRACE_SEIZE
sys.stdin.read()
"""


@contextmanager
def debugger(pid: int) -> Iterator[None]:
    """The kernel tells nobody else of the process's end meanwhile."""
    command = [sys.executable, "-c", SEIZE, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"0\n":
            pytest.skip("no process can be traced here; allow ptrace")
        yield
        process.communicate()


def test_a_killed_process_that_does_not_end_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jobs.process.job_process.KILLED_SECS", 0.5)
    process = JobProcess(_program(tmp_path), LIMITS)
    ends: list[JobEnd] = []
    thread = threading.Thread(target=lambda: ends.append(process.run()))
    thread.start()
    deadline = time.monotonic() + WAIT_S
    while process.take_news().progress.text != "asleep":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pid = int((tmp_path / "scratch" / "pid").read_text())
    with debugger(pid):
        process.abandon("the test is over")
        thread.join(WAIT_S)
        assert not thread.is_alive()
    os.waitpid(pid, 0)
    assert [end.outcome for end in ends] == ["abandoned"]
    assert f"process {pid} of modelyard job stuck was killed and has not ended" in caplog.text


def _program(folder: Path) -> JobProgram:
    output, scratch = folder / "output", folder / "scratch"
    output.mkdir()
    scratch.mkdir()
    task = folder / "task.json"
    task.write_text(json.dumps({"do": "sleep", "scratch": str(scratch)}))
    return JobProgram(
        python=sys.executable,
        task_file=task,
        output=output,
        scratch=scratch,
        sandbox=None,
        title="modelyard job stuck",
        module="support.job_deeds",
        roots=(str(ROOT), str(ROOT / "tests")),
    )
