"""What becomes of a failed attempt, and what a sweep takes back and sends."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from control.jobs.policy.leases import (
    LONGEST_PAUSE,
    Attempts,
    SweptJob,
    after_failure,
    pause_after,
    plan_sweep,
)
from control.jobs.policy.states import JobState
from support.jobs import START, after

QUEUED = SweptJob("1", JobState.QUEUED, 0, START, None, None)
RUNNING = SweptJob("2", JobState.RUNNING, 0, START, START, after(30))


@pytest.mark.parametrize(
    ("attempts", "state", "pause_s"),
    [
        (Attempts(1, 3, False), JobState.QUEUED, 5),
        (Attempts(2, 3, False), JobState.QUEUED, 10),
        (Attempts(3, 3, False), JobState.FAILED, 0),
        (Attempts(1, 3, True), JobState.CANCELLED, 0),
        (Attempts(3, 3, True), JobState.CANCELLED, 0),
    ],
)
def test_an_attempt_that_failed_is_followed_by_another_while_some_are_left(
    attempts: Attempts, state: JobState, pause_s: float
) -> None:
    following = after_failure(attempts, START)
    assert (following.state, following.not_before) == (state, after(pause_s))


def test_pauses_between_attempts_grow_to_a_bound() -> None:
    pauses = [pause_after(attempt) for attempt in range(1, 100)]
    assert pauses == sorted(pauses)
    assert pauses[0] == timedelta(seconds=5)
    assert pauses[-1] == LONGEST_PAUSE


@pytest.mark.parametrize(
    ("sent_at", "now", "sent"),
    [(None, START, True), (START, after(29), False), (START, after(30), True)],
)
def test_a_queued_job_is_sent_at_first_and_again_after_30_seconds(
    sent_at: datetime | None, now: datetime, sent: bool
) -> None:
    plan = plan_sweep([replace(QUEUED, sent_at=sent_at)], now)
    assert plan.send == (("1",) if sent else ())


def test_a_job_that_pauses_is_not_sent() -> None:
    assert plan_sweep([replace(QUEUED, not_before=after(5))], START).send == ()


def test_only_running_jobs_whose_lease_is_over_are_taken_back() -> None:
    publishing = replace(RUNNING, id="3", state=JobState.PUBLISHING)
    assert plan_sweep([QUEUED, RUNNING], after(29)).reclaim == ()
    assert plan_sweep([QUEUED, RUNNING, publishing], after(30)).reclaim == ("2",)


def test_the_most_urgent_are_sent_first_and_never_more_than_the_bound() -> None:
    waiting = [replace(QUEUED, id=f"{number:04}", priority=number % 2) for number in range(300)]
    sent = plan_sweep(waiting, START).send
    assert len(sent) == 100
    assert sent == tuple(f"{number:04}" for number in range(1, 200, 2))
