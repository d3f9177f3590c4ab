"""Jobs as the control process looks after them, where the machine makes difficulties."""

import os
import resource
from pathlib import Path

import pytest

from server.control_process.job_pumps import clear_if_possible
from server.job_worker.folders import scratch_shelf
from server.settings.table import Settings


def test_scratch_of_killed_jobs_that_cannot_be_cleared_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(state_dir=tmp_path)
    scratch_shelf(settings).mkdir(parents=True)
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        clear_if_possible(settings)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert f"'{tmp_path}/jobs/scratch' cannot be removed: Too many open files" in caplog.text
