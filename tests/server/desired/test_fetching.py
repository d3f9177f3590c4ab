"""A gateway that starts again is ready with the current desired state, or says that it is not."""

import time
from pathlib import Path

import pytest

from server.desired.disk import NAME
from support.yard import write_identity, yard

pytestmark = pytest.mark.slow


def test_it_is_not_ready_before_it_has_heard_what_it_missed(tmp_path: Path) -> None:
    """As when another server of the same database made the change while this one was down."""
    write_identity(tmp_path, "m", 1, 2, config="version_policy { all {} }\n")
    with yard(tmp_path) as y:
        y.wait_for(
            lambda: len(y.api("GET", "/loads?model=m")[1]["items"]) >= 2, "the versions to be told"
        )
        assert y.api("PUT", "/models/m/aliases/first", {"version": 1})[0] == 200
        y.wait_for(lambda: y.server.is_ready("/v2/models/m@first/ready"), "the alias")
        y.wait_for((y.state / NAME).exists, "it to be on the disk")
        old = (y.state / NAME).read_bytes()
        assert y.api("PUT", "/models/m/aliases/second", {"version": 2})[0] == 200
        y.wait_for(lambda: y.server.is_ready("/v2/models/m@second/ready"), "the other alias")
        y.stop()
        (y.state / NAME).write_bytes(old)

        y.start(wait=False)
        y.server.wait_ready(60)
        assert y.server.is_ready("/v2/models/m@second/ready")
        assert "received and loaded" in y.server.log()


def test_it_waits_no_longer_than_it_may_and_says_so(tmp_path: Path) -> None:
    with yard(tmp_path, initial_fetch_timeout_secs=2) as y:
        y.stop()
        for path in y.state.glob("modelyard.db*"):
            path.write_bytes(b"this is no database" * 1000)
        began = time.monotonic()
        y.start(wait=False)
        y.server.wait_ready(60)
        assert time.monotonic() - began > 2
        said = y.server.log()
        assert "ready without the current desired state after 2 s" in said
        assert "none was received" in said
