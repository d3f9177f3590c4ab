"""How `modelyard job` asks for jobs, and tells of progress and reports."""

from typing import Any

import pytest
from msgspec.structs import replace

from control.clock import utc_now
from control.jobs.policy.limits import JobCost, JobLimits
from control.jobs.policy.states import JobState
from control.jobs.report import Figure, Report
from control.jobs.spec import JOB_TYPES
from control.jobs.views import JobResultView, JobSourceView, JobView
from server.cli.commands.command import CommandFailed
from server.cli.commands.jobs import COMMANDS, field_values, line, report_lines, result_text

VIEW = JobView(
    id="j1",
    type="quantise",
    state=JobState.RUNNING,
    spec={},
    sources=(JobSourceView("source", "digits", 1, ""),),
    result=JobResultView("digits-int8", None, ""),
    reason="",
    fraction=0.5,
    progress="judging the result",
    cancel=False,
    attempt=1,
    most_attempts=3,
    queue="default",
    priority=0,
    heavy=True,
    limits=JobLimits(),
    machine="m",
    cost=JobCost(),
    by="user:ada",
    created_at=utc_now(),
    started_at=None,
    finished_at=None,
    pipeline="",
    step=0,
)


@pytest.mark.parametrize(
    ("changes", "bar", "text"),
    [
        ({}, False, " 50% judging the result"),
        ({}, True, "[############------------]  50% judging the result"),
        ({"progress": ""}, False, " 50%"),
        ({"progress": "a\x1b[2J"}, False, " 50% a [2J"),
        ({"state": JobState.QUEUED}, True, "queued"),
        ({"state": JobState.FAILED, "reason": "no memory"}, True, "failed: no memory"),
    ],
)
def test_a_line_tells_how_far_a_job_is(changes: dict[str, Any], bar: bool, text: str) -> None:
    assert line(replace(VIEW, **changes), bar) == text


def test_a_result_is_named_with_its_version_once_there_is_one() -> None:
    assert result_text(VIEW) == "digits-int8"
    made = replace(VIEW, result=JobResultView("digits-int8", 2, "d"))
    assert result_text(made) == "digits-int8 version 2"


def test_values_of_fields_are_json_or_else_text() -> None:
    given = ["floor=0.98", 'exclude=["a"]', "data=rows.npz", "per_channel=false", "output=a=b"]
    assert field_values(given, "--set") == {
        "floor": 0.98,
        "exclude": ["a"],
        "data": "rows.npz",
        "per_channel": False,
        "output": "a=b",
    }
    with pytest.raises(CommandFailed, match="--set takes FIELD=VALUE, got 'floor'"):
        field_values(["floor"], "--set")


def test_a_report_is_told_in_lines() -> None:
    report = Report(
        title="Quantise 'digits'",
        verdict="accepted",
        reasons=("accuracy fell by 0.1 points",),
        warnings=("int8 is slower here",),
        figures=(Figure("size", "bytes", 4000, 1000), Figure("largest difference", "", None, 0.5)),
    )
    assert report_lines(report) == [
        "Quantise 'digits': accepted",
        "accuracy fell by 0.1 points",
        "warning: int8 is slower here",
        "size: 4000 -> 1000 bytes",
        "largest difference: - -> 0.5",
    ]


def test_every_type_of_job_has_a_command() -> None:
    words = {command.words for command in COMMANDS}
    assert {f"job {kind.replace('_', '-')}" for kind in JOB_TYPES} <= words
