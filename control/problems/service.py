"""The problems there are, and an operator's word that they are known."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from control import loads
from control.deployments.pushes import list_pushes
from control.drift.findings import raised_drift
from control.drift.service import unusable_profiles
from control.errors import NotFound
from control.gateways.queries import VersionCrashes
from control.problems.policy import KilledRoute, NotInForce, ProblemFacts, problems
from control.problems.problem import in_rows
from control.problems.views import Acknowledgement, ProblemView
from control.rollouts.queries import list_rollouts
from control.servers import list_servers
from control.sql.database import Transaction
from control.tables import AcknowledgementRow, Alias, Model, PendingChange, Push, Route
from control.text import stored

LATEST = 100
LONGEST_NOTE = 1000
KEEP = timedelta(days=90)
"""After which an acknowledgement is forgotten when somebody makes another."""


def list_problems(
    session: Session,
    now: datetime,
    crashes: Sequence[VersionCrashes] = (),
    server: str = "",
    trouble: str = "",
) -> list[ProblemView]:
    """The worst first, those that are acknowledged last. `crashes`: of workers of `server`;
    `trouble`: why the database takes no changes."""
    facts = ProblemFacts(
        loads=loads.states(session),
        servers=list_servers(session, now),
        brought=_brought(session),
        pushes=list_pushes(session, limit=LATEST).items,
        rollouts=list_rollouts(session, limit=LATEST).items,
        pending=_pending(session),
        killed=_killed(session),
        crashes=crashes,
        server=server,
        trouble=trouble,
        drifted=raised_drift(session),
        profiles=unusable_profiles(session),
    )
    known = {
        row.key: Acknowledgement(row.note, row.by, row.at)
        for row in session.scalars(select(AcknowledgementRow))
    }
    return in_rows(problems(facts, now), known)


def acknowledged_versions(session: Session, now: datetime) -> frozenset[str]:
    """The models ("m") and versions ("m version 2") of which all that is wrong with how they load
    and answer is acknowledged."""
    if session.scalar(select(AcknowledgementRow.key).limit(1)) is None:
        return frozenset()
    known: dict[bool, set[str]] = {False: set(), True: set()}
    for one in list_problems(session, now):
        if one.kind in ("load", "health"):
            known[one.acknowledged is not None].update(one.subjects)
    return frozenset(known[True] - known[False])


def find_problem(there: Sequence[ProblemView], key: str) -> ProblemView:
    """Raises NotFound."""
    found = next((one for one in there if one.key == key), None)
    if found is None:
        raise NotFound(f"there is no problem '{key:.40}' now; `modelyard problem list` has them")
    return found


def acknowledge(tx: Transaction, problem: ProblemView, note: str) -> None:
    """Say that somebody knows of it: of all that are in its row."""
    tx.alone()
    note = stored(note.strip(), LONGEST_NOTE)
    _forget(tx, problem)
    for key in problem.members:
        tx.session.add(
            AcknowledgementRow(
                key=key, title=problem.title, note=note, by=tx.actor.principal, at=tx.now
            )
        )
    tx.session.execute(delete(AcknowledgementRow).where(AcknowledgementRow.at < tx.now - KEEP))
    before = None if problem.acknowledged is None else {"note": problem.acknowledged.note}
    after = {"note": note, "title": problem.title, "reason": stored(problem.reason, LONGEST_NOTE)}
    tx.changed("problem.acknowledged", _subject(problem), before, after)


def take_back(tx: Transaction, problem: ProblemView) -> None:
    """Say that nobody knows of it after all. Raises NotFound."""
    tx.alone()
    if problem.acknowledged is None:
        raise NotFound(f"'{problem.title:.200}' is not acknowledged")
    _forget(tx, problem)
    before = {"note": problem.acknowledged.note, "title": problem.title}
    tx.changed("problem.unacknowledged", _subject(problem), before, None)


def _forget(tx: Transaction, problem: ProblemView) -> None:
    mine = AcknowledgementRow.key.in_(problem.members)
    tx.session.execute(delete(AcknowledgementRow).where(mine))


def _subject(problem: ProblemView) -> str:
    return f"problem:{problem.key}"


def _brought(session: Session) -> dict[str, str]:
    """Whose push each model came with."""
    wanted = select(Model.name, Push.pusher).join(Push, Push.id == Model.push_id)
    return dict(session.execute(wanted).all())


def _pending(session: Session) -> list[NotInForce]:
    """Of aliases and routes that there still are."""
    aliases = select(Alias.model, Alias.name, Alias.updated_by)
    by = {f"alias {model}@{name}": who for model, name, who in session.execute(aliases)}
    routes = select(Route.name, Route.updated_by)
    by |= {f"route {name}": who for name, who in session.execute(routes)}
    order = (PendingChange.subject, PendingChange.server_id)
    return [
        NotInForce(row.subject, row.server_id, row.reason, row.at, by[row.subject])
        for row in session.scalars(select(PendingChange).order_by(*order))
        if row.subject in by
    ]


def _killed(session: Session) -> list[KilledRoute]:
    wanted = select(Route.name, Route.only, Route.updated_at, Route.updated_by)
    rows = session.execute(wanted.where(Route.only != "").order_by(Route.name))
    return [KilledRoute(*row) for row in rows]
