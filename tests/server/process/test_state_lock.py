"""One server for one state folder, whatever became of the one before."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.process.state_lock import NAME, StateFolderInUse, StateLock
from support.server import ROOT, running, write_identity
from support.yard import yard

HOLD = """
import sys
from pathlib import Path
from server.process.state_lock import StateLock
lock = StateLock(Path(sys.argv[1]), {"REST": "127.0.0.1:8000"})
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_free_again_when_its_holder_was_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateFolderInUse) as refused:
            StateLock(tmp_path, {})
        holder.kill()
    assert f"(pid {holder.pid}), REST 127.0.0.1:8000; " in str(refused.value)
    StateLock(tmp_path, {}).release()


def test_what_a_dead_server_wrote_hinders_nobody(tmp_path: Path) -> None:
    """Its pid may be another process's by now, also this one's: a container starts anew at 1."""
    (tmp_path / NAME).write_text(json.dumps({"pid": os.getpid(), "host": "gone", "listens": {}}))
    StateLock(tmp_path, {}).release()


def test_a_holder_on_another_host_is_named_with_it(tmp_path: Path) -> None:
    lock = StateLock(tmp_path, {"REST": "127.0.0.1:8000"})
    (tmp_path / NAME).write_text(json.dumps({"pid": 7, "host": "node-b", "listens": {}}))
    with pytest.raises(StateFolderInUse, match=r"in use by another server \(pid 7\) on node-b; "):
        StateLock(tmp_path, {})
    lock.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"'])
def test_a_file_that_says_nothing_is_still_a_lock(tmp_path: Path, text: str) -> None:
    lock = StateLock(tmp_path, {})
    (tmp_path / NAME).write_text(text)
    with pytest.raises(StateFolderInUse, match="in use by another server; stop that server"):
        StateLock(tmp_path, {})
    lock.release()


def test_a_folder_that_cannot_be_locked_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).mkdir()
    with caplog.at_level(logging.WARNING):
        StateLock(tmp_path, {}).release()
    assert "cannot be locked: Is a directory" in caplog.text


def test_a_second_server_on_one_state_folder_is_refused(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    with yard(tmp_path) as y:
        with running(tmp_path / "models", wait=False, state_dir=y.state) as second:
            status = second.wait_exit()
            said = second.log()
        assert y.answers()
        assert y.server.is_ready()
    assert status == 1
    assert f"another server (pid {y.server.pid}), REST {y.server.http}, " in said
    assert f"console 127.0.0.1:{y.admin_port}; " in said
    assert "with --state-dir" in said


def test_a_server_killed_with_sigkill_is_started_again_on_its_state_folder(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    with yard(tmp_path) as y:
        y.kill()
        y.start()
        assert y.server.is_ready()
