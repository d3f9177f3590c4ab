"""The gateway ends in its own time, whatever its control process does."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from server.desired.heartbeat_timeout import SILENT_S
from support.yard import write_identity, yard


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(60)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_control_process_that_hangs_does_not_keep_the_listeners_open(tmp_path: Path) -> None:
    """Nor does it use up the time in which the requests in flight are to be answered."""
    with yard(tmp_path) as y:
        control = y.control_pid()
        os.kill(control, signal.SIGSTOP)
        y.server.process.send_signal(signal.SIGTERM)
        y.wait_for(lambda: not _listens(y.server.http_port), "the listeners to close")
        still_there = y.control_pid() == control
        os.kill(control, signal.SIGCONT)

        assert still_there
        assert y.server.process.wait(60) == 0


@pytest.mark.slow
def test_a_stopped_control_process_is_replaced_as_a_dead_one_is(tmp_path: Path) -> None:
    """It is killed and reaped first: two never serve one state folder. Models keep serving."""
    write_identity(tmp_path, "echo", 1)
    with yard(tmp_path) as y:
        stopped = y.control_pid()
        os.kill(stopped, signal.SIGSTOP)
        y.wait_for(lambda: y.control_pid() not in (0, stopped), "another control process")
        y.wait_for(y.answers, "the control process to answer")

        assert not Path(f"/proc/{stopped}").exists()
        assert y.server.is_ready()
        assert "it has stopped, or hangs; it is killed and restarted" in y.server.log()


@pytest.mark.slow
def test_a_server_that_was_suspended_as_a_whole_keeps_its_control_process(tmp_path: Path) -> None:
    """Longer than silence may last; afterwards the gateway first has to hear of its child."""
    with yard(tmp_path) as y:
        gateway, control = y.server.pid, y.control_pid()
        for pid in (gateway, control):
            os.kill(pid, signal.SIGSTOP)
        suspended = time.monotonic() + SILENT_S + 5
        while time.monotonic() < suspended:
            time.sleep(0.5)
        os.kill(gateway, signal.SIGCONT)
        time.sleep(2)  # the gateway looks before its child runs again
        os.kill(control, signal.SIGCONT)
        y.wait_for(y.answers, "the control process to answer")

        assert y.control_pid() == control
        assert "is killed and restarted" not in y.server.log()
