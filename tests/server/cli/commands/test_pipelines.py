"""How `modelyard pipeline` tells of pipelines."""

from control.clock import utc_now
from control.jobs.policy.pipelines import PipelineState
from control.pipelines.views import PipelineStepView, PipelineView
from server.cli.commands.pipelines import lines_of


def step(number: int, kind: str, state: str, version: int | None = None) -> PipelineStepView:
    is_job = kind != "rollout"
    return PipelineStepView(
        number=number,
        type=kind,
        state=state,
        job=f"j{number}" if is_job and state != "waiting" else "",
        fraction=0.5,
        model="digits-int8" if version else "",
        version=version,
        rollout="r1" if not is_job and state == "done" else "",
        reason="",
    )


def test_a_pipeline_is_told_in_a_line_and_one_for_each_step() -> None:
    view = PipelineView(
        id="p1",
        model="digits",
        version=2,
        digest="d",
        push="x",
        state=PipelineState.RUNNING,
        reason="",
        step=2,
        steps=(
            step(1, "optimise", "done", 1),
            step(2, "quantise", "running"),
            step(3, "rollout", "waiting"),
            step(4, "rollout", "done", 1),
        ),
        by="user:ada",
        created_at=utc_now(),
        finished_at=None,
    )
    assert lines_of(view) == [
        "pipeline p1 of digits version 2: running",
        "  1. optimise: done, digits-int8 version 1, job j1",
        "  2. quantise: running 50%, job j2",
        "  3. rollout: waiting",
        "  4. rollout: done, digits-int8 version 1, rollout r1",
    ]
