"""The test aid that kills its own process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from control import crash


def _reach(name: str, environment: dict[str, str]) -> int:
    program = f"from control import crash; crash.point({name!r}); print('went on')"
    clean = {key: value for key, value in os.environ.items() if key != crash.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, **environment},
        stdout=subprocess.DEVNULL,
        timeout=180,
        check=False,
    ).returncode


def test_a_process_is_killed_at_the_point_that_is_named() -> None:
    assert _reach("push.deployed", {crash.VARIABLE: "push.deployed"}) == -signal.SIGKILL


def test_other_points_and_no_name_have_no_effect() -> None:
    assert _reach("push.deployed", {crash.VARIABLE: "push.served"}) == 0
    assert _reach("push.deployed", {}) == 0


def test_a_file_names_the_point_once(tmp_path: Path) -> None:
    trigger = tmp_path / "crash"
    armed = {crash.VARIABLE: f"@{trigger}"}
    assert _reach("push.deployed", armed) == 0
    trigger.write_text("push.deployed")
    assert _reach("push.served", armed) == 0
    assert _reach("push.deployed", armed) == -signal.SIGKILL
    assert _reach("push.deployed", armed) == 0


def test_a_point_that_nobody_knows_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"'push\.lost' is no crash point"):
        crash.point("push.lost")
