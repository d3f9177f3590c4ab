"""The life of an experiment: draft → running → stopped → concluded; a draft can be deleted.

It watches the arms of a route and moves no traffic: shares that differ from the route's weights
show up as a sample-ratio mismatch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from control import paging
from control.clock import new_id, text_of
from control.errors import Conflict, Invalid, NotFound
from control.experiments.analysis_text import verdict
from control.experiments.evaluation import judge
from control.experiments.metrics import NAME
from control.experiments.namespaces import free_range
from control.experiments.tables import Experiment
from control.experiments.terms import ExperimentTerms, parse_terms
from control.experiments.totals import open_ledger, read_sums
from control.experiments.views import Conclusion, ExperimentDocument, ExperimentState
from control.experiments.weight_changes import weights_moved
from control.paging import SortOrder
from control.sql.database import Transaction, expect_revision
from control.text import stored
from control.views import Page

MOST_RUNNING = 1_000
LONGEST_WORDS, LONGEST_ROUTE = 4_096, 255
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """`buckets`: of its namespace, empty before it first runs; `by` is who made it."""

    id: str
    name: str
    route: str
    state: ExperimentState
    terms: ExperimentTerms
    buckets: range
    by: str
    created_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    conclusion: Mapping[str, Any] | None
    revision: int

    def document(self) -> ExperimentDocument:
        terms, conclusion = self.terms, self.conclusion
        return ExperimentDocument(
            id=self.id,
            name=self.name,
            route=self.route,
            state=self.state,
            arms=terms.arms,
            metrics=terms.metrics,
            alpha=terms.alpha,
            horizon=terms.horizon,
            namespace=terms.namespace,
            share_percent=terms.share_percent,
            window_s=terms.window_s,
            buckets=(self.buckets.start, self.buckets.stop),
            by=self.by,
            created_at=self.created_at,
            started_at=self.started_at,
            stopped_at=self.stopped_at,
            conclusion=None if conclusion is None else msgspec.convert(conclusion, Conclusion),
            revision=self.revision,
        )


def create_experiment(
    tx: Transaction, name: str, route: str, terms: Mapping[str, Any]
) -> ExperimentView:
    """A draft. `terms` as `parse_terms` reads them; whether the route and the arms exist is for
    the caller to see to. Raises Invalid, Conflict for a name that is taken."""
    if not NAME.fullmatch(name):
        raise Invalid(
            f"'{name:.80}' cannot name an experiment: use 1 to 63 of a-z, 0-9, '_' and '-', with "
            "a letter first",
            "name",
        )
    if not route or len(route) > LONGEST_ROUTE or not route.isprintable():
        raise Invalid(f"route cannot be {route!r:.80}; give the public name of a route", "route")
    parsed = parse_terms(terms)
    tx.alone()
    if tx.session.scalar(select(Experiment.id).where(Experiment.name == name)):
        raise Conflict(f"there is an experiment '{name}' already; choose another name")
    row = Experiment(
        id=new_id(tx.now),
        name=name,
        route=route,
        state=ExperimentState.DRAFT,
        terms=parsed.as_json(),
        first_bucket=0,
        by=tx.actor.principal,
        created_at=tx.now,
        revision=1,
    )
    tx.session.add(row)
    tx.changed("experiment.created", f"experiment:{name}", None, _facts(row), route=route)
    return view_of(row)


def start_experiment(tx: Transaction, name: str, expected: int | None = None) -> ExperimentView:
    """From now on exposures count. Raises NotFound; Conflict for one that is no draft, for a route
    that has one running, for a namespace without room; Stale."""
    row = _held(tx, name, expected)
    _check_state(row, "started", ExperimentState.DRAFT)
    terms = parse_terms(row.terms)
    others = list(running(tx.session))
    if len(others) >= MOST_RUNNING:
        raise Conflict(f"{MOST_RUNNING} experiments are running; stop one first")
    for other in others:
        shared = terms.namespace and terms.namespace == other.terms.namespace
        if other.route == row.route and not shared:
            raise Conflict(
                f"the route '{row.route}' has the experiment '{other.name}' running; stop it first,"
                " or give both the same namespace to share it in"
            )
    held = _room(terms, others)
    before = _facts(row)
    row.first_bucket, row.started_at = held.start, tx.now
    _move(row, ExperimentState.RUNNING)
    open_ledger(tx.session, row.id, terms)
    tx.changed("experiment.started", f"experiment:{name}", before, _facts(row))
    tx.desire()
    return view_of(row)


def stop_experiment(tx: Transaction, name: str, expected: int | None = None) -> ExperimentView:
    """No new units from now on. Raises NotFound, Conflict for one that is not running, Stale."""
    row = _held(tx, name, expected)
    _check_state(row, "stopped", ExperimentState.RUNNING)
    before = _facts(row)
    row.stopped_at = tx.now
    _move(row, ExperimentState.STOPPED)
    tx.changed("experiment.stopped", f"experiment:{name}", before, _facts(row))
    tx.desire()
    return view_of(row)


def conclude_experiment(
    tx: Transaction, name: str, decision: str, expected: int | None = None
) -> ExperimentView:
    """Keep what was decided, in words, beside the verdict of the numbers; nothing counts any more.

    Raises NotFound, Invalid without words, Conflict for one that is not stopped, Stale.
    """
    row = _held(tx, name, expected)
    _check_state(row, "concluded", ExperimentState.STOPPED)
    words = stored(decision, LONGEST_WORDS).strip()
    if not words:
        raise Invalid(
            "say in words what was decided, e.g. 'ship b: it converts better'", "decision"
        )
    before = _facts(row)
    moved = weights_moved(tx.session, row.route, row.started_at, row.stopped_at)
    found = judge(parse_terms(row.terms), read_sums(tx.session, row.id), moved)
    row.conclusion = {
        "decision": words,
        "verdict": verdict(found),
        "by": tx.actor.principal,
        "at": text_of(tx.now),
    }
    _move(row, ExperimentState.CONCLUDED)
    tx.changed("experiment.concluded", f"experiment:{name}", before, _facts(row), decision=words)
    return view_of(row)


def delete_experiment(tx: Transaction, name: str, expected: int | None = None) -> ExperimentView:
    """What it was. Raises NotFound, Conflict for one that has been started, Stale."""
    row = _held(tx, name, expected)
    _check_state(row, "deleted", ExperimentState.DRAFT)
    tx.session.delete(row)
    tx.changed("experiment.deleted", f"experiment:{name}", _facts(row), None)
    return view_of(row)


def list_experiments(
    session: Session,
    *,
    route: str | None = None,
    state: ExperimentState | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[ExperimentView]:
    """Newest first. Raises Invalid for a bad cursor or limit."""
    query = select(Experiment)
    if route is not None:
        query = query.where(Experiment.route == route)
    if state is not None:
        query = query.where(Experiment.state == state)
    order = SortOrder((Experiment.id,), newest_first=True)
    return paging.page(session, query, order, cursor, limit).map(view_of)


def get_experiment(session: Session, name: str) -> ExperimentView:
    """Raises NotFound naming some there are."""
    return view_of(_found(session, name))


def running(session: Session) -> tuple[ExperimentView, ...]:
    """What gateways are to report exposures for, by name."""
    query = (
        select(Experiment)
        .where(Experiment.state == ExperimentState.RUNNING)
        .order_by(Experiment.name)
    )
    return tuple(view_of(row) for row in session.scalars(query))


def view_of(row: Experiment) -> ExperimentView:
    terms = parse_terms(row.terms)
    taken = range(row.first_bucket, row.first_bucket + terms.share_buckets)
    return ExperimentView(
        row.id,
        row.name,
        row.route,
        ExperimentState(row.state),
        terms,
        taken if row.started_at else range(0),
        row.by,
        row.created_at,
        row.started_at,
        row.stopped_at,
        row.conclusion,
        row.revision,
    )


def _room(terms: ExperimentTerms, others: list[ExperimentView]) -> range:
    if not terms.namespace:
        return range(terms.share_buckets)
    beside = [other for other in others if other.terms.namespace == terms.namespace]
    held = free_range(terms.share_buckets, [other.buckets for other in beside])
    if held is None:
        names = ", ".join(f"{one.name} ({len(one.buckets) / 100:g} %)" for one in beside[:_SHOWN])
        raise Conflict(
            f"the namespace '{terms.namespace}' has no {terms.share_buckets / 100:g} % in one "
            f"piece left beside {names}; take a smaller share or stop one of them"
        )
    return held


def _held(tx: Transaction, name: str, expected: int | None) -> Experiment:
    tx.alone()
    row = _found(tx.session, name)
    expect_revision(row.revision, expected, f"the experiment '{name}'")
    return row


def _found(session: Session, name: str) -> Experiment:
    found = None
    if name.isprintable():
        found = session.scalar(select(Experiment).where(Experiment.name == name))
    if found is None:
        names = session.scalars(
            select(Experiment.name).order_by(Experiment.id.desc()).limit(_SHOWN)
        )
        raise NotFound(
            f"there is no experiment '{name:.80}'; the latest are {', '.join(names) or 'none'}"
        )
    return found


def _check_state(row: Experiment, what: str, state: ExperimentState) -> None:
    if row.state != state:
        raise Conflict(
            f"the experiment '{row.name}' is {row.state}; only one that is {state.value} can be "
            f"{what}"
        )


def _move(row: Experiment, state: ExperimentState) -> None:
    row.state, row.revision = state, row.revision + 1


def _facts(row: Experiment) -> dict[str, Any]:
    return {"state": str(row.state), "revision": row.revision, "terms": row.terms}
