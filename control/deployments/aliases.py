"""Aliases: names for versions, which can be moved, one compare-and-set at a time."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import func, literal, select
from sqlalchemy.orm import Session

from control import paging
from control.deployments.deployment import check_model_name
from control.deployments.pending_changes import by_subject
from control.deployments.route_references import check_alias_unrouted
from control.errors import Conflict, Invalid, NotFound
from control.paging import SortOrder
from control.sql.database import Transaction, expect_revision
from control.tables import Alias, LoadState, Model, Version
from control.views import AliasView, Page, PendingView

MOST_PER_MODEL = 100

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_SHOWN = 20


def set_alias(
    tx: Transaction, model: str, name: str, version: int, expected: int | None = None
) -> AliasView:
    """Make or move an alias; to where it stands already changes nothing.

    `expected`: its revision, 0 for "it does not exist yet". Raises Invalid for a bad name or a
    version that does not exist, NotFound for an unknown model, Conflict.
    """
    check_alias_name(name)
    tx.alone()
    row = tx.session.get(Alias, (model, name))
    expect_revision(row.revision if row else 0, expected, f"the alias '{model}@{name}'")
    check_version(tx.session, model, version)
    if row is None:
        row = _create(tx, model, name, version)
    elif row.version != version:
        before = _facts(row)
        row.version, row.revision = version, row.revision + 1
        row.updated_at, row.updated_by = tx.now, tx.actor.principal
        tx.changed("alias.moved", f"alias:{model}@{name}", before, _facts(row))
        tx.desire()
    return _view(row)


def delete_alias(tx: Transaction, model: str, name: str, expected: int | None = None) -> AliasView:
    """What it was. Raises NotFound, Conflict when its revision is not `expected` or a route leads
    to it."""
    tx.alone()
    row = _found(tx.session, model, name)
    expect_revision(row.revision, expected, f"the alias '{model}@{name}'")
    check_alias_unrouted(tx.session, model, name)
    tx.session.delete(row)
    tx.changed("alias.deleted", f"alias:{model}@{name}", _facts(row), None)
    tx.desire()
    return _view(row)


def list_aliases(
    session: Session,
    model: str | None = None,
    *,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[AliasView]:
    """By model and name. Raises Invalid for a bad cursor or limit."""
    query = select(Alias)
    if model is not None:
        query = query.where(Alias.model == model)
    order = SortOrder((Alias.model, Alias.name))
    return paging.page(session, query, order, cursor, limit).map(_shown(session))


def get_alias(session: Session, model: str, name: str) -> AliasView:
    """Raises NotFound naming the model's aliases."""
    return _shown(session)(_found(session, model, name))


def aliases_of(session: Session, models: Collection[str]) -> dict[str, list[AliasView]]:
    """By model, sorted by name; a model without aliases is left out."""
    query = select(Alias).where(Alias.model.in_(models)).order_by(Alias.name)
    found, shown = defaultdict(list), _shown(session)
    for row in session.scalars(query):
        found[row.model].append(shown(row))
    return dict(found)


def check_version(session: Session, model: str, version: int) -> None:
    """Hold a reference to a version against what there is. A model that lies in a folder has the
    versions that some gateway has told of. Raises NotFound for the model, Invalid for the version.
    """
    check_model_name(model)
    row = session.get(Model, model)
    if row is not None and (row.snapshot_digest or row.repository_id):
        deployed = bool(row.snapshot_digest)
        numbers = select(Version.number).where(Version.model == model, literal(deployed))
    else:
        numbers = select(LoadState.version).where(LoadState.model == model, LoadState.version > 0)
    there = sorted(set(session.scalars(numbers)))
    if not there:
        raise NotFound(f"there is no model '{model}' deployed or in a model repository")
    if version not in there:
        shown = ", ".join(map(str, there[-_SHOWN:]))
        raise Invalid(f"the model '{model}' has no version {version}; it has {shown}", "version")


def _create(tx: Transaction, model: str, name: str, version: int) -> Alias:
    counted = select(func.count()).select_from(Alias).where(Alias.model == model)
    if (tx.session.scalar(counted) or 0) >= MOST_PER_MODEL:
        raise Conflict(f"the model '{model}' has {MOST_PER_MODEL} aliases; delete one first")
    row = Alias(
        model=model,
        name=name,
        version=version,
        updated_at=tx.now,
        updated_by=tx.actor.principal,
        revision=1,
    )
    tx.session.add(row)
    tx.changed("alias.created", f"alias:{model}@{name}", None, _facts(row))
    tx.desire()
    return row


def check_alias_name(name: str) -> None:
    """Raises Invalid for a name that no alias can have."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"'{name:.80}' cannot name an alias: use 1 to 63 of a-z, 0-9, '_' and '-', with a "
            "letter first",
            "name",
        )


def _found(session: Session, model: str, name: str) -> Alias:
    row = session.get(Alias, (model, name)) if (model + name).isprintable() else None
    if row is None:
        names = select(Alias.name).where(Alias.model == model).order_by(Alias.name).limit(_SHOWN)
        there = ", ".join(session.scalars(names)) if model.isprintable() else ""
        raise NotFound(f"there is no alias '{model:.150}@{name:.80}'; it has {there or 'none'}")
    return row


def _facts(row: Alias) -> dict[str, Any]:
    return {"version": row.version, "revision": row.revision}


def _shown(session: Session) -> Callable[[Alias], AliasView]:
    """`_view` with what is pending, which is read once for all."""
    pending = by_subject(session)
    return lambda row: _view(row, pending.get(f"alias {row.model}@{row.name}", ()))


def _view(row: Alias, pending: tuple[PendingView, ...] = ()) -> AliasView:
    return AliasView(
        model=row.model,
        name=row.name,
        version=row.version,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        revision=row.revision,
        pending=pending,
    )
