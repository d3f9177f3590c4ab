"""A port that somebody else has: said once, tried until it is free; the rest works meanwhile."""

import socket
import time
from pathlib import Path

import pytest

from server.control_process.admin_listener import RETRY_S
from support.yard import yard


@pytest.mark.slow
def test_a_taken_admin_port_is_named_once_and_opened_when_it_is_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with yard(tmp_path, admin_port=port) as y:  # it answers over its Unix socket
            control = y.control_pid()
            until = time.monotonic() + 1.2 * RETRY_S
            y.wait_for(lambda: time.monotonic() > until, "one more try")
            taken.close()
            y.wait_for(lambda: f"admin    http://127.0.0.1:{port}" in y.server.log(), "the port")
            assert y.server.get("/login", port=port)[0] == 200
            assert y.control_pid() == control
            said = y.server.log()
    assert said.count("cannot be opened") == 1
    assert f"the admin port 127.0.0.1:{port} cannot be opened: " in said
    assert f"the admin port 127.0.0.1:{port} is open now" in said
