"""Which state of a job may follow which."""

import pytest

from control.jobs.policy.states import ENDS, NEXT, UNFINISHED, JobState, may_follow


def test_every_state_can_be_reached_and_left_or_is_an_end() -> None:
    reached = {after for following in NEXT.values() for after in following}
    assert reached == set(JobState)
    assert set(ENDS) | set(UNFINISHED) == set(JobState)
    assert all(NEXT[state] for state in UNFINISHED)


@pytest.mark.parametrize(
    ("state", "after"),
    [
        ("done", "queued"),
        ("running", "done"),
        ("queued", "done"),
        ("publishing", "queued"),
        ("queued", "publishing"),
        ("running", "publishing"),
    ],
)
def test_no_state_follows_one_that_it_cannot(state: str, after: str) -> None:
    assert not may_follow(JobState(state), JobState(after))


def test_only_what_failed_or_was_cancelled_is_tried_again() -> None:
    assert {state for state in ENDS if NEXT[state]} == {JobState.FAILED, JobState.CANCELLED}
