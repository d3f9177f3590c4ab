"""Rollouts in a database for tests: servers that are alive, counts that grow, routes as rows."""

import json
from dataclasses import asdict

from sqlalchemy.orm import Session

from control import loads, servers
from control.rollouts import counts, service
from control.rollouts.arms import RolloutTotals
from control.rollouts.commands import RolloutCommand
from control.rollouts.counts import GatewayReport
from control.rollouts.plan import BUCKETS, RolloutPlan, RolloutStep
from control.rollouts.service import CandidateRequest, TickResult, WeightRequest
from control.rollouts.views import RolloutView
from control.sql.database import SYSTEM, Database, Transaction
from control.tables import Meta
from support.control import ADA
from support.rollout import arm

FAST = RolloutPlan(
    mirror=RolloutStep(500, 0, 1),
    steps=(RolloutStep(100, 0, 1), RolloutStep(5_000, 0, 1)),
    last=RolloutStep(BUCKETS, 0, 1),
)
NAME = "digits"


class RowRoutes:
    """Keeps each name's weights in a row of its own, so that they come and go with the commit."""

    def set_weights(self, tx: Transaction, name: str, weights: WeightRequest) -> None:
        row = tx.session.get(Meta, f"route:{name}")
        if row is None:
            row = Meta(key=f"route:{name}")
            tx.session.add(row)
        row.value = json.dumps(asdict(weights))


ROUTES = RowRoutes()


def weights(database: Database, name: str = NAME) -> WeightRequest | None:
    with database.reading() as session:
        return _weights(session, name)


def _weights(session: Session, name: str) -> WeightRequest | None:
    row = session.get(Meta, f"route:{name}")
    return None if row is None else WeightRequest(**json.loads(row.value))


def alive(database: Database, server: str = "srv-1", model: str = NAME, *versions: int) -> None:
    """The server is there and has these versions loaded."""
    with database.change(SYSTEM) as tx:
        servers.register(tx, server, "boot-1", "0.1", "http://127.0.0.1:1")
        loads.record(tx, server, [(model, version, "READY", "") for version in versions])


def begun(
    database: Database, candidate: int = 2, stable: int | None = 1, plan: RolloutPlan = FAST
) -> RolloutView:
    with database.change(ADA) as tx:
        return service.start(tx, ROUTES, CandidateRequest(NAME, NAME, candidate, stable), plan)


def report(
    database: Database,
    rollout_id: str,
    answered: int,
    errors: int = 0,
    server: str = "srv-1",
    process: str = "p1",
    crashes: int = 0,
) -> None:
    """What the server has counted in all, the same for each arm but for the candidate's errors."""
    tried = arm(answered, errors)
    arms = RolloutTotals(arm(answered), tried, tried)
    with database.change(SYSTEM) as tx:
        counts.record(tx, rollout_id, server, process, GatewayReport(arms, crashes))


def ticked(database: Database, rollout_id: str) -> TickResult:
    with database.change(SYSTEM) as tx:
        return service.tick(tx, ROUTES, rollout_id)


def told_to(database: Database, rollout_id: str, command: RolloutCommand) -> RolloutView:
    with database.change(ADA) as tx:
        return service.command(tx, ROUTES, rollout_id, command)


def walked(database: Database, rollout_id: str, phase: str, answered: int = 0) -> RolloutView:
    """On with healthy traffic until it is in the phase."""
    for number in range(1, 20):
        report(database, rollout_id, answered + number)
        view = ticked(database, rollout_id).view
        if view.phase == phase:
            return view
    raise AssertionError(f"it never came to {phase}: {view}")


def taken_over(database: Database, candidate: int, stable: int | None) -> RolloutView:
    """A whole rollout that went well."""
    alive(database, "srv-1", NAME, *{candidate, stable or candidate})
    return walked(database, begun(database, candidate, stable).id, "healthy")
