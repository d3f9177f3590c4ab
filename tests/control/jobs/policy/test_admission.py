"""Which queued job a worker takes next."""

from dataclasses import replace

import pytest

from control.jobs.policy.admission import (
    AdmissionRules,
    QueuedJob,
    RunningJob,
    WorkerIdentity,
    next_job,
)
from support.jobs import START, after

WORKER = WorkerIdentity("w", "here")
LIGHT = QueuedJob("1", "user:ada", "default", 0, False, START)
HEAVY = replace(LIGHT, heavy=True)
RULES = AdmissionRules(1, 2, 100)


def test_the_highest_priority_is_taken_and_of_equal_ones_the_oldest() -> None:
    waiting = [replace(LIGHT, id="3", priority=5), replace(LIGHT, id="2", priority=5), LIGHT]
    assert next_job(waiting, [], WORKER, RULES, START) == "2"


@pytest.mark.parametrize(
    "job",
    [
        replace(LIGHT, queue="gpu"),
        replace(LIGHT, not_before=after(1)),
    ],
    ids=["another queue", "its pause is not over"],
)
def test_a_job_that_may_not_be_taken_waits(job: QueuedJob) -> None:
    assert next_job([job], [], WORKER, RULES, START) is None
    assert next_job([job, LIGHT], [], WORKER, RULES, START) == LIGHT.id


def test_a_principal_runs_no_more_jobs_than_the_rules_say() -> None:
    running = [RunningJob("user:ada", "there", False)] * 2
    assert next_job([LIGHT], running, WORKER, RULES, START) is None
    others = replace(LIGHT, id="2", by="user:bob")
    assert next_job([LIGHT, others], running, WORKER, RULES, START) == "2"


def test_a_machine_runs_one_heavy_job_and_light_ones_beside_it() -> None:
    running = [RunningJob("user:bob", "here", True)]
    assert next_job([HEAVY], running, WORKER, RULES, START) is None
    assert next_job([HEAVY, replace(LIGHT, id="2")], running, WORKER, RULES, START) == "2"
    elsewhere = replace(WORKER, machine="there")
    assert next_job([HEAVY], running, elsewhere, RULES, START) == HEAVY.id
    more = replace(RULES, heavy_per_machine=2)
    assert next_job([HEAVY], running, WORKER, more, START) == HEAVY.id
