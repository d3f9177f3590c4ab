"""Processes whose parent has ended belong to the job that started them, and end with it alone."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.process.program import ROOT
from repository.sandbox.enter import kernel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not kernel().seccomp, reason="no seccomp here"),
]


def said(scene: str, folder: Path) -> str:
    """What the jobs of a program of their own came to; nothing of them may be left."""
    mark = secrets.token_hex(8)
    command = [sys.executable, "-m", "support.adopting_jobs", scene, str(folder), mark]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    lines = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline") if one.exists()]
    assert not [line for line in lines if mark.encode() in line]
    return ran.stdout.strip()


@pytest.mark.parametrize("scene", ["beside", "strays"])
def test_the_end_of_one_job_leaves_another_ones_processes_alone(scene: str, tmp_path: Path) -> None:
    assert said(scene, tmp_path) == "['finished', 'finished']"


def test_what_leaves_a_jobs_session_counts_to_it_and_ends_with_it(tmp_path: Path) -> None:
    assert "of memory, more than its limit of 256 MiB" in said("escaped", tmp_path)
