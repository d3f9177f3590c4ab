"""The gateway ends in its own time, whatever its control process does."""

import os
import signal
import socket
from pathlib import Path

from yard_support import yard


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(60)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_control_process_that_hangs_does_not_keep_the_doors_open(tmp_path: Path) -> None:
    """Nor does it use up the time in which the requests inside are to be answered."""
    with yard(tmp_path) as y:
        control = y.control_pid()
        os.kill(control, signal.SIGSTOP)
        y.server.process.send_signal(signal.SIGTERM)
        y.wait_for(lambda: not _listens(y.server.http_port), "the doors to close")
        still_there = y.control_pid() == control
        os.kill(control, signal.SIGCONT)

        assert still_there
        assert y.server.process.wait(60) == 0
