"""Profiling a version on a server that the tool starts."""

import sys
from pathlib import Path

import msgspec
import pytest

from control.jobs.messages import Task
from control.jobs.specs.profile import ProfileSpec
from jobs.process.job_process import JobProcess
from jobs.process.limits import ProcessLimits
from jobs.process.program import ROOT, JobProgram
from repository.sandbox.enter import kernel
from repository.sandbox.policy import Sandbox
from support.tool_sources import digits_rows, digits_source
from support.tools import run_tool

SPEC = ProfileSpec(
    model="digits", version=1, seconds=0.5, concurrency=4, instances=(1,), batch_sizes=(1, 8),
    delays_us=(0,), threads=(1,),
)  # fmt: skip


@pytest.mark.slow
def test_each_choice_is_served_and_measured(tmp_path: Path) -> None:
    rows = {name: one for name, one in digits_rows(100).items() if name != "labels"}
    run = run_tool(tmp_path / "run", SPEC, digits_source(tmp_path / "source"), rows)
    report = run.report
    assert report.verdict == "advice"
    assert {row[:4] for row in report.tables[0].rows} == {(1, 1, 0, 1), (1, 8, 0, 1)}
    assert all(float(row[4] or 0) > 0 for row in report.tables[0].rows)
    assert list(run.output.iterdir()) == []
    assert report.config == "" or "instance_group" in report.config


@pytest.mark.slow
def test_a_model_that_does_not_load_is_refused_with_the_servers_reason(tmp_path: Path) -> None:
    source = digits_source(tmp_path / "source")
    (source / "model.onnx").write_bytes(b"no network")
    refusal = run_tool(tmp_path / "run", SPEC, source).refusal
    assert refusal.startswith("the model cannot be measured as it is served:")
    assert "digits" in refusal


@pytest.mark.slow
def test_an_open_dimension_needs_a_data_file(tmp_path: Path) -> None:
    source = digits_source(tmp_path / "source")
    config = (
        (source / "config.pbtxt").read_text().replace("dims: [ 1, 8, 8 ]", "dims: [ 1, -1, 8 ]")
    )
    (source / "config.pbtxt").write_text(config)
    refusal = run_tool(tmp_path / "run", SPEC, source).refusal
    assert refusal.startswith("input 'IMAGE' has dims [1, -1, 8]: name a data file")


@pytest.mark.slow
def test_a_profile_runs_in_the_confinement_that_its_worker_gives_it(tmp_path: Path) -> None:
    found = kernel()
    if not found.seccomp:
        pytest.skip("this kernel does not filter system calls")
    for name in ("output", "scratch"):
        (tmp_path / name).mkdir()
    folders = {name: tmp_path / name for name in ("output", "scratch")}
    source, output, scratch = digits_source(tmp_path / "source"), *map(str, folders.values())
    task = Task("job-1", SPEC, str(source), {}, "", output, scratch, 1, 1)
    (tmp_path / "task.json").write_bytes(msgspec.json.encode(task))
    sandbox = Sandbox(
        profile="default", landlock_abi=found.landlock_abi, seccomp=True, everywhere=True,
        hidden=(), readable=(str(tmp_path), str(ROOT)), writable=(output, scratch), network=False,
        unix_sockets=True, execute=True, leave_group=True, shared_memory=False,
    )  # fmt: skip
    program = JobProgram(
        sys.executable,
        tmp_path / "task.json",
        folders["output"],
        folders["scratch"],
        sandbox,
        "job",
    )
    end = JobProcess(program, ProcessLimits(wall_secs=300.0)).run()
    assert end.outcome == "finished", end.reason
    assert end.report is not None
    assert len(end.report.tables[0].rows) == 2
