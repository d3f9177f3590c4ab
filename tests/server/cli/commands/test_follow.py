"""`modelyard event follow`: live, and taken up again where a stream broke off."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.access.users import create_user
from control.sql.database import SYSTEM
from server.cli.commands.events import parse_stream
from support.admin import Api
from support.server import ROOT


@pytest.fixture
def following(running: Api, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    # A shell that runs us in the background has us ignore interrupts, and so would the child.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "server.cli", "event", "follow", "--json", "--after", "0"]
    process = subprocess.Popen(
        [*command, "--state-dir", str(tmp_path / "state")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    signal.signal(signal.SIGINT, before)
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_events_are_printed_as_they_happen_until_interrupted(
    running: Api, following: "subprocess.Popen[str]"
) -> None:
    assert following.stdout is not None
    for name in ("ada", "bob"):
        with running.database.change(SYSTEM) as tx:
            create_user(tx, name, "viewer")
        assert json.loads(following.stdout.readline())["subject"] == f"user:{name}"
    following.send_signal(signal.SIGINT)
    assert following.wait(60) == 0


def test_a_stream_is_read_frame_by_frame() -> None:
    lines = b'retry: 2000\nid: 0\n\n: still here\n\nid: 7\nevent: a.b\ndata: {"x": 1}\n\nid: 8\n'
    assert list(parse_stream(lines.splitlines(keepends=True))) == [(0, None), (7, {"x": 1})]
