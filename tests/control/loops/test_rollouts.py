"""The pump of rollouts hears of crashes, of units in the wrong arm and of experiments, and acts."""

import asyncio
import time

import pytest
from sqlalchemy.orm import make_transient

from control import loads, servers
from control.desired import DesiredArm
from control.experiments import route_arms
from control.experiments import service as experiments
from control.gateways.arm_reports import ArmReport, ArmReports
from control.loops.rollouts import RolloutController
from control.rollouts import arms as counted
from control.rollouts import queries, route_changes
from control.rollouts import service as rollouts
from control.rollouts.assignment_counts import AssignmentCount
from control.rollouts.plan import Mode, RolloutPlan, RolloutStep
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import CandidateRequest
from control.rollouts.signals import signals_of
from control.rollouts.state import PauseReason, Phase
from control.rollouts.views import RolloutView
from control.routes import service as routes
from control.routes.spec import RouteSpec
from control.sql.database import SYSTEM, Database
from support.control import ADA
from support.control_deploy import deployed, repository, sealed
from support.experiments import CONVERSION, exposed, given, seen, told

PLAN = RolloutPlan(mode=Mode.PROGRESSIVE, mirror=None, steps=(RolloutStep(5_000, 600, 10),))
PATIENCE_S = 60.0
BOUGHT = {**CONVERSION, "missing": "ignored"}


class Yard:
    """A rollout of version 2 of `digits` over a database, and the pump that moves it."""

    def __init__(self, database: Database, plan: RolloutPlan = PLAN) -> None:
        self.database = database
        repository(database)
        deployed(database, 1, sealed("digits", {1: "a", 2: "b"}))
        with database.change(SYSTEM) as tx:
            servers.register(tx, "srv", "boot", "0.1", "http://127.0.0.1:1")
            loads.record(tx, "srv", [("digits", number, "READY", "") for number in (1, 2)])
        with database.change(ADA) as tx:
            whole = RouteSpec((DesiredArm("stable", "digits", 1, "", 10_000),), "header:x-user")
            route_changes.set_route(tx, "digits", whole)
            wish = CandidateRequest("digits", "digits", 2, 1)
            self.rollout = rollouts.start(tx, RolloutRoutes(), wish, plan).id

    def view(self) -> RolloutView:
        with self.database.reading() as session:
            return queries.get_rollout(session, self.rollout)

    def until(self, phase: Phase, *told: ArmReports) -> RolloutView:
        """Run the pump, which hears this, until the rollout is there."""

        async def run() -> None:
            pump = RolloutController(self.database, "srv", "boot")
            job = asyncio.create_task(pump.run())
            try:
                for one in told:
                    await pump.on_arm_reports(one)
                pump.ring()
                await asyncio.to_thread(wait)
            finally:
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)

        def wait() -> None:
            until = time.monotonic() + PATIENCE_S
            while self.view().phase is not phase:
                assert time.monotonic() < until, self.view()
                time.sleep(0.01)

        asyncio.run(run())
        return self.view()

    def windows(
        self, crashes: int = 0, assignments: tuple[AssignmentCount, ...] = ()
    ) -> ArmReports:
        """Both arms have answered a little."""
        arm = counted.ArmTotals(counted.OutcomeCounts(5))
        name = "digits"
        rows = tuple(
            ArmReport(name, self.rollout, which, name, number, False, 0, died, 0, arm)
            for which, number, died in (("stable", 1, 0), ("candidate", 2, crashes))
        )
        return ArmReports("srv", "g1", rows, {self.rollout: assignments})


@pytest.fixture
def rolling(sqlite: Database) -> Yard:
    made = Yard(sqlite)
    made.until(Phase.STEP, made.windows())
    return made


def test_a_crash_of_its_worker_takes_the_candidate_back(rolling: Yard) -> None:
    view = rolling.until(Phase.DEGRADED, rolling.windows(crashes=1))
    assert view.reason == "rolled back: its worker crashed once"
    with rolling.database.reading() as session:
        route = routes.get_route(session, "digits")
    assert [(arm.version, arm.weight) for arm in route.spec.arms] == [(1, 10_000)]


def test_units_that_the_candidate_loses_pause_it_until_a_person_says_otherwise(
    rolling: Yard,
) -> None:
    assignments = (AssignmentCount(rolling.view().salt, 5_000, 1_000, 300),)
    view = rolling.until(Phase.PAUSED, rolling.windows(assignments=assignments))
    assert view.pause is PauseReason.SRM
    assert "of 1,000 units 300 met the candidate" in view.reason
    with rolling.database.change(ADA) as tx:
        rollouts.command(tx, RolloutRoutes(), rolling.rollout, "resume")
    assert rolling.until(Phase.STEP, rolling.windows(assignments=assignments)).pause is None


def experiment(database: Database, **metric: str) -> experiments.ExperimentView:
    """Compares the rollout's arms by what users buy."""
    terms = {"metrics": [{**BOUGHT, **metric}], "arms": [{"name": "stable"}, {"name": "candidate"}]}
    with database.change(ADA) as tx:
        terms = route_arms.placed(tx.session, "digits", terms)
        made = experiments.create_experiment(tx, "shop", "digits", terms)
        route_arms.check_placed(tx.session, made)
        return experiments.start_experiment(tx, "shop")


def bought(database: Database, view: experiments.ExperimentView, worse: bool) -> None:
    units = [f"u{number}" for number in range(400)]
    exposed(database, seen(view, "stable", *units[::2]) + seen(view, "candidate", *units[1::2]))
    for start in range(0, 400, 200):
        rows = [
            told(view, unit, number % 2 == 0 or (number % 4 == 1 and not worse))
            for number, unit in enumerate(units[start : start + 200])
        ]
        given(database, *rows)


def test_feedback_that_shows_harm_takes_the_candidate_back(rolling: Yard) -> None:
    view = experiment(rolling.database)
    bought(rolling.database, view, worse=True)
    ended = rolling.until(Phase.DEGRADED, rolling.windows())
    assert ended.reason.startswith("rolled back: conversion (shop) is worse by at least 0.")
    with rolling.database.reading() as session:
        assert experiments.get_experiment(session, "shop").state == "stopped"


def test_feedback_that_young_units_have_not_given_yet_is_no_harm(rolling: Yard) -> None:
    view = experiment(rolling.database, missing="zero")
    bought(rolling.database, view, worse=True)
    with rolling.database.reading() as session:
        (harm,) = signals_of(session, rolling.rollout).harms
    assert "declare it with missing=ignored" in harm.unfit
    assert rolling.until(Phase.STEP, rolling.windows()).phase is Phase.STEP


def test_a_rollout_that_cannot_be_read_is_told_of_once_and_stops_no_other(
    rolling: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    with rolling.database.change(ADA) as tx:
        row = queries.find(tx.session, rolling.rollout)
        tx.session.expunge(row)
        make_transient(row)
        row.id, row.name, row.state = "broken", "another", {"windows": {}}
        tx.session.add(row)
        tx.happened("rollout.start", "rollout:broken")
    rolling.until(Phase.DEGRADED, rolling.windows(crashes=1))
    said = [one for one in caplog.records if "rollout broken failed to advance" in one.message]
    assert len(said) == 1
