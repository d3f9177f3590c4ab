"""The acceptance of hot reloading, as a client sees it: nobody notices."""

import json
import subprocess
import sys

import pytest

from support.server import ROOT


@pytest.mark.slow
def test_no_request_fails_while_versions_come_and_go_under_load() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.reload", "--seconds", "16"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert seen["failures"] == {}
    assert seen["versions"] == ["2", "3", "2"]
    assert seen["version_4"].startswith("UNAVAILABLE: model 'digits' version 4: model.onnx")
