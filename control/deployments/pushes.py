"""Pushes and other wishes to deploy a commit: every step of their life is one transaction.

A step that was made already is not made again, so that a deployer may repeat what a crash cut off.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from control import paging
from control.clock import new_id
from control.deployments import repositories
from control.deployments.deployment import Origin, deploy_models
from control.deployments.sealed_model import SealedModel
from control.errors import Conflict, Invalid, NotFound
from control.paging import SortOrder
from control.push_states import UNFINISHED, PushState, may_follow
from control.sql.database import Transaction
from control.tables import Push, Repository
from control.text import stored
from control.views import Page, PushView
from repository.git.names import is_null, is_oid
from repository.git.rules import RefUpdate

NO_COMMIT = "0" * 40
LONGEST_REPORT, LONGEST_NAME = 65_536, 255

KEPT = timedelta(days=90)
"""How long a push that was refused, or never came to its end, is still listed."""


@dataclass(frozen=True, slots=True)
class PushFacts:
    """What is known of a push beside its refs. `pusher` and `address`: "" for the transaction's
    actor. `subject` and `author`: of the commit. `report`: what the pusher was told."""

    subject: str = ""
    author: str = ""
    pusher: str = ""
    address: str = ""
    report: str = ""
    models: Mapping[str, str | None] = field(default_factory=dict)


def receive(tx: Transaction, repository_name: str, update: RefUpdate, facts: PushFacts) -> PushView:
    """pre-receive said yes; git is about to move the ref. Raises NotFound."""
    return _begin(tx, repository_name, "push", update, facts, PushState.RECEIVED)


def refuse(
    tx: Transaction, repository_name: str, update: RefUpdate, facts: PushFacts, report: str
) -> PushView:
    """pre-receive said no, for the reasons in `report`. Raises NotFound."""
    return _begin(tx, repository_name, "push", update, facts, PushState.REFUSED, report)


def deploy_commit(
    tx: Transaction,
    repository_name: str,
    commit: str,
    ref: str = "",
    facts: PushFacts | None = None,
) -> PushView:
    """An operator wants `commit` deployed, wherever the deploy ref stands. Its report is what was
    found when the commit was pushed. Raises NotFound, and Invalid when it is not a whole commit id.

    The operator answers for what it lists as callees: who may operate may use every model.
    """
    if not is_oid(commit) or is_null(commit):
        raise Invalid(f"'{commit:.80}' is not a whole commit id in hex", "commit")
    update = RefUpdate(NO_COMMIT, commit, ref)
    report = _told_before(tx.session, repositories.find(tx.session, repository_name).id, commit)
    facts = facts or PushFacts()
    return _begin(tx, repository_name, "deploy", update, facts, PushState.ACCEPTED, report)


def _told_before(session: Session, repository_id: str, commit: str) -> str:
    """What the last who pushed the commit was told, "" where nobody was told anything."""
    told = (
        select(Push.pusher, Push.report)
        .where(
            Push.repository_id == repository_id,
            Push.new_commit == commit,
            Push.kind == "push",
            Push.report != "",
        )
        .order_by(Push.sequence.desc())
        .limit(1)
    )
    found = session.execute(told).one_or_none()
    return f"What {found[0]} was told who pushed it:\n{found[1]}" if found else ""


def accept(tx: Transaction, push_id: str) -> PushView:
    """The ref has moved: to be deployed when it is the deploy ref, otherwise this is the end.

    Raises NotFound, Conflict.
    """
    row, repository = _held(tx, push_id)
    if row.accepted_at is not None:
        return _view(row, repository.name)
    deployed = row.ref == repository.deploy_ref and not is_null(row.new_commit)
    row.finished_at, row.reason = None, ""  # it may have been given up too early
    _step(tx, row, PushState.ACCEPTED if deployed else PushState.STORED)
    row.accepted_at = tx.now
    return _view(row, repository.name)


def deploy(tx: Transaction, push_id: str, models: Mapping[str, SealedModel | None]) -> PushView:
    """Move the desired state to the push's commit: `models` are all in its tree, by name.

    Models of the repository that are missing or None are undeployed. A push that is older than
    what the repository has deployed ends as superseded instead. Raises NotFound, and Conflict as
    `control.deployments.deployment.deploy_models` does: nothing is changed then, and the caller
    finishes it.
    """
    row, repository = _held(tx, push_id)
    if row.deployed_at is not None or row.state == PushState.SUPERSEDED:
        return _view(row, repository.name)
    if newer := _deployed_later(tx.session, row):
        _step(tx, row, PushState.SUPERSEDED, f"the later push {newer} was deployed first")
        return _view(row, repository.name)
    _check_step(row, PushState.DEPLOYED)
    origin = Origin(repository.id, row.id, row.new_commit, row.pusher)
    row.models = deploy_models(tx, origin, models)
    row.deployed_at = tx.now
    _step(tx, row, PushState.DEPLOYED)
    return _view(row, repository.name)


def finish(tx: Transaction, push_id: str, state: PushState | str, reason: str = "") -> PushView:
    """Served, failed, abandoned or superseded, and why. Raises NotFound, Conflict."""
    row, repository = _held(tx, push_id)
    if row.state != state:
        _step(tx, row, PushState(state), reason)
    return _view(row, repository.name)


def forget(tx: Transaction) -> None:
    """Pushes of long ago that moved nothing; the others are where versions come from."""
    over = Push.state.in_((PushState.REFUSED, PushState.ABANDONED))
    tx.session.execute(delete(Push).where(over, Push.finished_at <= tx.now - KEPT))


def unfinished(session: Session) -> list[PushView]:
    """What a deployer still has to see to, in the order in which it came."""
    waiting = select(Push, Repository.name).join(Repository).where(Push.state.in_(UNFINISHED))
    rows = session.execute(waiting.order_by(Push.sequence)).all()
    return [_view(push, name) for push, name in rows]


def list_pushes(
    session: Session,
    *,
    repository: str | None = None,
    state: str | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[PushView]:
    """Newest first. Raises NotFound for an unknown repository, Invalid for the rest."""
    query = select(Push)
    if repository is not None:
        query = query.where(Push.repository_id == repositories.find(session, repository).id)
    if state is not None:
        query = query.where(Push.state == _known_state(state))
    order = SortOrder((Push.sequence, Push.id), newest_first=True)
    found = paging.page(session, query, order, cursor, limit)
    names = _names(session, {row.repository_id for row in found.items})
    return found.map(lambda row: _view(row, names[row.repository_id]))


def get_push(session: Session, push_id: str) -> PushView:
    """Raises NotFound."""
    row, repository = _found(session, push_id)
    return _view(row, repository.name)


def _begin(
    tx: Transaction,
    repository_name: str,
    kind: str,
    update: RefUpdate,
    facts: PushFacts,
    state: PushState,
    report: str | None = None,
) -> PushView:
    tx.alone()
    repository = repositories.find(tx.session, repository_name)
    row = Push(
        id=new_id(tx.now),
        repository_id=repository.id,
        kind=kind,
        ref=stored(update.ref, LONGEST_NAME),
        old_commit=update.old,
        new_commit=update.new,
        subject=stored(facts.subject, LONGEST_REPORT),
        author=stored(facts.author, LONGEST_NAME),
        pusher=stored(facts.pusher or tx.actor.principal, LONGEST_NAME),
        address=stored(facts.address or tx.actor.address, LONGEST_NAME),
        state=state,
        fence=tx.fence.number if tx.fence else 0,
        report=stored(facts.report if report is None else report, LONGEST_REPORT),
        reason="",
        models=dict(facts.models),
        received_at=tx.now,
        accepted_at=tx.now if state == PushState.ACCEPTED else None,
        deployed_at=None,
        finished_at=tx.now if state == PushState.REFUSED else None,
    )
    row.sequence = tx.changed(f"push.{state}", f"push:{row.id}", None, _facts(row, repository))
    tx.session.add(row)
    tx.session.flush()
    return _view(row, repository.name)


def _held(tx: Transaction, push_id: str) -> tuple[Push, Repository]:
    tx.alone()
    return _found(tx.session, push_id)


def _found(session: Session, push_id: str) -> tuple[Push, Repository]:
    pair = select(Push, Repository).join(Repository).where(Push.id == push_id)
    found = session.execute(pair).one_or_none() if push_id.isprintable() else None
    if found is None:
        raise NotFound(f"there is no push '{push_id:.80}'")
    return found[0], found[1]


def _step(tx: Transaction, row: Push, state: PushState, reason: str = "") -> None:
    _check_step(row, state)
    before = {"state": row.state}
    row.state, row.reason = state, stored(reason, LONGEST_REPORT)
    row.fence = tx.fence.number if tx.fence else row.fence
    if state not in UNFINISHED:
        row.finished_at = tx.now
    after = {"state": str(state)} | ({"reason": row.reason} if reason else {})
    repository = tx.session.get_one(Repository, row.repository_id).name
    facts = {
        "repository": repository,
        "ref": row.ref,
        "commit": row.new_commit,
        "models": row.models,
    }
    tx.changed(f"push.{state}", f"push:{row.id}", before, after, **facts)


def _check_step(row: Push, state: PushState) -> None:
    if not may_follow(state, PushState(row.state)):
        raise Conflict(f"the push {row.id} is {row.state}; it cannot become {state}")


def _deployed_later(session: Session, row: Push) -> str | None:
    later = select(Push.id).where(
        Push.repository_id == row.repository_id,
        Push.sequence > row.sequence,
        Push.deployed_at.is_not(None),
    )
    return session.scalar(later.order_by(Push.sequence.desc()).limit(1))


def _known_state(state: str) -> PushState:
    if state not in tuple(PushState):
        raise Invalid(f"'{state:.80}' is no state of a push; {', '.join(PushState)} are", "state")
    return PushState(state)


def _names(session: Session, ids: set[str]) -> dict[str, str]:
    query = select(Repository.id, Repository.name).where(Repository.id.in_(ids))
    return dict(session.execute(query).all())


def _facts(row: Push, repository: Repository) -> dict[str, Any]:
    return {
        "repository": repository.name,
        "kind": row.kind,
        "ref": row.ref,
        "old_commit": row.old_commit,
        "new_commit": row.new_commit,
        "pusher": row.pusher,
        "state": str(row.state),
    }


def _view(row: Push, repository: str) -> PushView:
    same = {
        name: getattr(row, name)
        for name in PushView.__struct_fields__
        if name not in ("repository", "state")
    }
    return PushView(repository=repository, state=PushState(row.state), **same)
