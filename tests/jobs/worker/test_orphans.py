"""What a job has started ends with the next worker when its own was killed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.process.program import LEADER, ROOT
from jobs.worker import orphans
from repository.files.owner import token_of
from repository.sandbox.scratch import ScratchFolders

WAIT_S = 30.0
CHILD = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


@pytest.fixture
def child() -> Iterator["subprocess.Popen[str]"]:
    """Without an environment, in a session of its own."""
    command = [sys.executable, "-I", "-c", CHILD]
    with subprocess.Popen(
        command,
        env={},
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        yield process
        process.kill()


def left(shelf: Path, token: str) -> None:
    """A worker's folder with an attempt in it."""
    attempt = shelf / "worker" / "attempt"
    attempt.mkdir(parents=True)
    (attempt / LEADER).write_text(token)


def test_process_without_environment_is_ended_by_its_session(
    child: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    left(tmp_path, token_of(child.pid))
    assert orphans.clear(tmp_path, ScratchFolders(tmp_path)) == 1
    assert child.wait(WAIT_S) == -9
    assert list(tmp_path.iterdir()) == []


def test_process_that_left_its_session_is_ended_by_its_mark(
    child: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    code = f"from jobs.process.mark import set_mark; set_mark({child.pid}); {CHILD}"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={},
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as marked:
        assert marked.stdout is not None
        marked.stdout.readline()
        left(tmp_path, token_of(child.pid))
        orphans.clear(tmp_path, ScratchFolders(tmp_path))
        assert marked.wait(WAIT_S) == -9


@pytest.mark.parametrize("token", ["another start", "no token", "-1.5.x"])
def test_process_that_has_the_number_by_now_is_left_alone(
    token: str, child: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    pid, started, boot = token_of(child.pid).split(".")
    left(tmp_path, f"{pid}.{int(started) + 1}.{boot}" if token == "another start" else token)
    orphans.clear(tmp_path, ScratchFolders(tmp_path))
    assert child.poll() is None
