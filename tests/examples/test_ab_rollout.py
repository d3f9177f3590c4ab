"""The story of four versions, as its script tells it against a server of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.yard import yard

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_story_is_told_with_one_version_taken_over_and_two_rolled_back(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        command = [sys.executable, "-m", "examples.ab_rollout.tell"]
        command += ["--grpc", y.server.grpc, "--state-dir", str(y.state)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr + y.server.log()
    _, second, third, fourth = done.stdout.split("== version")[1:]
    assert "healthy" in second
    assert "failed" not in second
    assert "is degraded" in done.stderr
    for taken_back, why in ((third, "of its requests failed"), (fourth, "× the stable version's")):
        assert "rolled back" in taken_back
        assert why in taken_back
    assert "answered" in third.partition("meanwhile")[2]
    assert "failed" not in fourth
    assert "== served now: version 2 of shop-" in done.stdout
