"""Tools in the confinement that their worker gives them: no network and no other process."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from control.jobs.messages import Task
from control.jobs.spec import JobSpec
from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.prune import PruneSpec
from control.jobs.specs.quantise import QuantiseSpec
from jobs.process.job_process import JobProcess
from jobs.process.limits import ProcessLimits
from jobs.process.program import ROOT, JobProgram
from repository.sandbox.enter import kernel
from repository.sandbox.policy import Sandbox
from support.convert_sources import program_source, xgboost_source
from support.tool_sources import digits_rows, digits_source

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not kernel().seccomp, reason="this kernel does not filter system calls"),
]


def confined(spec: JobSpec, source: Path, data: Path | None, folder: Path) -> None:
    """Run it; the test fails with its reason where it comes to no result."""
    output, scratch = folder / "output", folder / "scratch"
    for one in (output, scratch):
        one.mkdir(parents=True)
    task = Task("1", spec, str(source), {}, str(data or ""), str(output), str(scratch), 1, 1)
    (folder / "task.json").write_bytes(msgspec.json.encode(task))
    sandbox = Sandbox(
        profile="default", landlock_abi=kernel().landlock_abi, seccomp=True, everywhere=True,
        hidden=(), readable=(str(folder.parent), str(ROOT)),
        writable=(str(output), str(scratch)), network=False, unix_sockets=False, execute=True,
        fork=False, leave_group=False, shared_memory=False, attributes=False,
    )  # fmt: skip
    program = JobProgram(
        sys.executable, folder / "task.json", output, scratch, sandbox, "modelyard job 1"
    )
    end = JobProcess(program, ProcessLimits(wall_secs=500.0)).run()
    assert end.outcome == "finished", end.reason


def test_networks_are_quantised(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", **digits_rows(200))
    spec = QuantiseSpec(model="digits", version=1, floor=0.5)
    confined(spec, digits_source(tmp_path / "source"), tmp_path / "rows.npz", tmp_path / "run")


def test_programs_of_torch_and_trees_are_converted(tmp_path: Path) -> None:
    spec = ConvertSpec(model="m", version=1)
    confined(spec, program_source(tmp_path / "program"), None, tmp_path / "first")
    trees = xgboost_source(tmp_path / "trees", "cancer")
    confined(spec, trees, None, tmp_path / "second")


def test_networks_are_pruned_and_trained_by_their_recipes(dots: Path, tmp_path: Path) -> None:
    confined(PruneSpec(model="dots", version=1, epochs=1, floor=50), dots, None, tmp_path / "run")
