"""A pipeline stands as the job of its step does, and is done with the last."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.jobs.policy.pipelines import PipelineState, state_after
from control.jobs.policy.states import ENDS, NEXT, JobState

JOB, RUNNING = JobState, PipelineState.RUNNING


@pytest.mark.parametrize(
    ("job", "step", "state"),
    [
        (JOB.QUEUED, 1, RUNNING),
        (JOB.RUNNING, 1, RUNNING),
        (JOB.PUBLISHING, 2, RUNNING),
        (JOB.DONE, 1, RUNNING),
        (JOB.DONE, 2, PipelineState.DONE),
        (JOB.FAILED, 1, PipelineState.FAILED),
        (JOB.FAILED, 2, PipelineState.FAILED),
        (JOB.CANCELLED, 2, PipelineState.CANCELLED),
    ],
)
def test_pipeline_of_two_steps(job: JobState, step: int, state: PipelineState) -> None:
    assert state_after(job, step, 2) is state


@st.composite
def lives(draw: st.DrawFn) -> list[JobState]:
    """What becomes of one job, with its retries, to its last end."""
    states = [JobState.QUEUED]
    while states[-1] not in ENDS or (NEXT[states[-1]] and draw(st.booleans())):
        states.append(draw(st.sampled_from(sorted(NEXT[states[-1]]))))
    return states


@given(st.lists(lives(), min_size=1, max_size=4))
def test_a_pipeline_has_ended_exactly_where_no_job_of_it_is_left(
    jobs: list[list[JobState]],
) -> None:
    for step, life in enumerate(jobs, 1):
        for state in life:
            found = state_after(state, step, len(jobs))
            goes_on = state is JobState.DONE and step < len(jobs)
            assert (found is RUNNING) is (state not in ENDS or goes_on)
        if life[-1] is not JobState.DONE:
            assert found in (PipelineState.FAILED, PipelineState.CANCELLED)
            return
    assert found is PipelineState.DONE
