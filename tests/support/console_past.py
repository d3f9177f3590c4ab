"""A past of a yard: `past_rollout`, which was rolled back, and `past_experiment`, which has
run for a day. Both go through the real policies, each in one transaction whose clock is moved.
`past_job` has ended with a report, and `begun_pipeline` has come to its first step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from control.clock import utc_now
from control.experiments import service as experiments
from control.experiments.analysis import record_points
from control.experiments.records.exposures import ExposureEvent, expose
from control.experiments.records.feedback import ClientFeedback, feedback
from control.experiments.stamp import unit_key
from control.jobs.claims import AttemptDone, claim, finish, renew
from control.jobs.messages import CurvePoint, JobProgress
from control.jobs.policy.admission import WorkerIdentity
from control.pipelines.service import PushedSteps, begin
from control.rollouts import counts, service
from control.rollouts.arms import RolloutTotals
from control.rollouts.counts import GatewayReport
from control.rollouts.plan_keys import parse_plan
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import CandidateRequest
from control.sql.database import Actor, Database, Transaction
from support.jobs import REPORT
from support.rollout import arm
from support.yard import Yard

OTTO = Actor("user:otto", "console")
ROLLOUT_AGO, EXPERIMENT_AGO = timedelta(minutes=50), timedelta(hours=20)
EVERY = timedelta(seconds=5)
FAILS_AFTER = timedelta(minutes=12)
PLAN = {"mirror": "5", "steps": "10, 50", "hold": "5m", "min_sample": "200"}
ANSWERED = 40
"""By each arm in `EVERY`."""
UNITS_AT_ONCE, ROUNDS = 60, 40


def past_rollout(yard: Yard) -> str:
    """The id of one of digits 2, whose route is there and whose versions are loaded: mirrored, one
    step passed, rolled back in the second because requests fail."""
    yard.wait_versions("digits", 1, 2, 3)
    server = yard.api("GET", "/server")[1]["id"]
    with _past(yard, ROLLOUT_AGO) as (tx, began):
        wish = CandidateRequest("digits", "digits", 2, 1)
        view = service.start(tx, RolloutRoutes(), wish, parse_plan(PLAN))
        for number in range(1, 1000):
            tx.now = began + number * EVERY
            failing = max(0, number - FAILS_AFTER // EVERY)
            tried = arm(ANSWERED * number, 4 * failing, 10)
            totals = RolloutTotals(arm(ANSWERED * number, number // 9, 10), tried, tried)
            counts.record(tx, view.id, server, "past", GatewayReport(totals, 0))
            while (ticked := service.tick(tx, RolloutRoutes(), view.id)).moved:
                pass
            if ticked.view.finished_at is not None:
                return view.id
    raise AssertionError(f"it did not end: {ticked.view}")


def past_experiment(yard: Yard, name: str) -> None:
    """Start it, a draft over the arms `stable` and `next` with the metric `bought`, a while ago."""
    with _past(yard, EXPERIMENT_AGO) as (tx, began):
        view = experiments.start_experiment(tx, name)
        for number in range(ROUNDS):
            tx.now = began + (number + 1) * (EXPERIMENT_AGO / (ROUNDS + 1))
            units = range(number * UNITS_AT_ONCE, (number + 1) * UNITS_AT_ONCE)
            arms = {f"u{one}": "next" if one % 4 == 0 else "stable" for one in units}
            expose(
                tx,
                [
                    ExposureEvent(view.id, unit_key(unit).hex(), which, tx.now)
                    for unit, which in arms.items()
                ],
            )
            bought = (
                ClientFeedback(
                    "bought", int(unit[1:]) % 60 < share, tx.now, experiment=name, unit=unit
                )
                for unit, which in arms.items()
                for share in (12 if which == "stable" else 21,)
            )
            feedback(tx, list(bought))
            record_points(tx)


def past_job(yard: Yard, job_id: str) -> str:
    """Its id, once a worker of the queue "nobody" has handed in a report of it."""
    worker = WorkerIdentity("seed", "seed", frozenset({"nobody"}))
    database = Database(f"sqlite:///{yard.state}/modelyard.db")
    try:
        claimed = claim(database, worker, job_id)
        assert claimed is not None
        points = [CurvePoint("loss", step, 2.0 / (step + 1)) for step in range(20)]
        renew(database, claimed, JobProgress(0.5, "measuring"), points, ["128 rows calibrate"])
        finish(database, claimed, AttemptDone(REPORT))
    finally:
        database.close()
    return job_id


def begun_pipeline(yard: Yard) -> str:
    """The id of the job that is its first step, on digits version 3."""
    steps = ({"type": "optimise"}, {"type": "quantise"}, {"type": "rollout"})
    database = Database(f"sqlite:///{yard.state}/modelyard.db")
    try:
        with database.change(OTTO) as tx:
            view = begin(tx, PushedSteps("digits", {3: "0" * 64}, steps, "", is_checked=True))
    finally:
        database.close()
    assert view is not None
    return view.steps[0].job


@contextmanager
def _past(yard: Yard, ago: timedelta) -> Iterator[tuple[Transaction, datetime]]:
    """A transaction that begins so long ago, and when that was."""
    database = Database(f"sqlite:///{yard.state}/modelyard.db")
    try:
        with database.change(OTTO) as tx:
            began = tx.now = utc_now() - ago
            yield tx, began
    finally:
        database.close()
