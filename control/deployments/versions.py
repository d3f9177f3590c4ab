"""What models and versions there are, with where they came from, how they are, and who refers."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from control import loads, paging
from control.deployments import repositories
from control.deployments.aliases import aliases_of
from control.errors import NotFound
from control.health import worst
from control.lineage import Lineage
from control.paging import SortOrder
from control.tables import Model, Repository, SnapshotRow, Version
from control.views import (
    AliasView,
    LoadView,
    ModelView,
    Page,
    Provenance,
    VersionOfModel,
    VersionStateView,
    VersionView,
)

_SHOWN = 20


def list_models(
    session: Session,
    *,
    repository: str | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[ModelView]:
    """Models that are or were deployed, by name. Raises NotFound for an unknown repository,
    Invalid for a bad cursor or limit."""
    query = select(Model)
    if repository is not None:
        query = query.where(Model.repository_id == repositories.find(session, repository).id)
    found = paging.page(session, query, SortOrder((Model.name,)), cursor, limit)
    return Page(tuple(_models(session, found.items)), found.next)


def get_model(session: Session, name: str) -> ModelView:
    """Raises NotFound."""
    return _models(session, [_found(session, name)])[0]


def list_versions(
    session: Session, model: str, *, cursor: str | None = None, limit: int = paging.USUAL
) -> Page[VersionView]:
    """The highest number first. Raises NotFound for an unknown model, Invalid."""
    row = _found(session, model)
    query = select(Version).where(Version.model == model)
    order = SortOrder((Version.number,), newest_first=True)
    found = paging.page(session, query, order, cursor, limit)
    return Page(tuple(_versions_of(session, row, found.items)), found.next)


def get_version(session: Session, model: str, number: int) -> VersionView:
    """Raises NotFound naming the versions there are."""
    row = _found(session, model)
    one = session.get(Version, (model, number)) if 0 < number < 2**63 else None
    if one is None:
        numbers = select(Version.number).where(Version.model == model).order_by(Version.number)
        there = ", ".join(map(str, session.scalars(numbers).all()[-_SHOWN:]))
        raise NotFound(f"the model '{model}' has no version {number}; it has {there or 'none'}")
    return _versions_of(session, row, [one])[0]


def _found(session: Session, name: str) -> Model:
    row = session.get(Model, name) if name.isprintable() else None
    if row is None:
        raise NotFound(f"no model '{name:.150}' was ever deployed")
    return row


def _models(session: Session, rows: Sequence[Model]) -> list[ModelView]:
    names = [row.name for row in rows]
    by = Version.number.desc()  # rows, not objects: there may be hundreds of models
    query = select(*Version.__table__.c).where(Version.model.in_(names)).order_by(by)
    aliases, states = aliases_of(session, names), _states(session, names)
    versions = defaultdict(list)
    for version in _versions(session, rows, session.execute(query).all(), aliases, states):
        versions[version.model].append(version)
    health: dict[str, list[str]] = defaultdict(list)
    for (model, _), on_servers in states.items():
        health[model] += [one.health.state for one in on_servers]
    repository = _repository_names(session, {row.repository_id for row in rows})
    return [
        ModelView(
            name=row.name,
            repository=repository.get(row.repository_id or ""),
            commit=row.commit,
            snapshot=row.snapshot_digest,
            push=row.push_id,
            deployed_at=row.deployed_at,
            revision=row.revision,
            versions=tuple(map(_of_model, versions[row.name])),
            aliases={alias.name: alias.version for alias in aliases.get(row.name, ())},
            states=_shown(states.get((row.name, 0), ())),
            health=worst(health[row.name]),
        )
        for row in rows
    ]


def _versions_of(session: Session, model: Model, rows: Sequence[Version]) -> list[VersionView]:
    names = [model.name]
    return _versions(session, [model], rows, aliases_of(session, names), _states(session, names))


def _versions(
    session: Session,
    models: Sequence[Model],
    rows: Sequence[Any],
    aliases: Mapping[str, Sequence[AliasView]],
    states: Mapping[tuple[str, int], Sequence[LoadView]],
) -> list[VersionView]:
    """`models` are those that the rows are of."""
    deployed = _deployed(session, models)
    repository = _repository_names(session, {row.repository_id for row in rows})
    return [
        VersionView(
            model=row.model,
            version=row.number,
            digest=row.digest,
            snapshot=row.snapshot_digest,
            size_bytes=row.size_bytes,
            files=row.files,
            provenance=Provenance(
                repository.get(row.repository_id or ""),
                row.push_id,
                row.source,
                row.pusher,
                row.signer,
            ),
            checks=row.checks,
            created_at=row.created_at,
            deployed=(row.model, row.number) in deployed,
            states=_shown(states.get((row.model, row.number), ())),
            aliases=tuple(
                alias.name for alias in aliases.get(row.model, ()) if alias.version == row.number
            ),
            lineage=msgspec.convert(row.lineage, Lineage) if row.lineage else None,
        )
        for row in rows
    ]


def _deployed(session: Session, models: Sequence[Model]) -> set[tuple[str, int]]:
    digests = {model.snapshot_digest for model in models if model.snapshot_digest}
    query = select(SnapshotRow.model, SnapshotRow.versions).where(SnapshotRow.digest.in_(digests))
    return {(model, int(number)) for model, there in session.execute(query) for number in there}


def _states(session: Session, models: Collection[str]) -> dict[tuple[str, int], list[LoadView]]:
    found = defaultdict(list)
    for state in loads.states(session, models):
        found[state.model, state.version].append(state)
    return dict(found)


def _repository_names(session: Session, ids: set[str | None]) -> dict[str, str]:
    query = select(Repository.id, Repository.name).where(Repository.id.in_(ids - {None}))
    return dict(session.execute(query).all())


def _of_model(one: VersionView) -> VersionOfModel:
    return VersionOfModel(one.version, one.digest, one.deployed, one.states, one.aliases)


def _shown(states: Sequence[LoadView]) -> tuple[VersionStateView, ...]:
    return tuple(
        VersionStateView(one.server, one.state, one.reason, one.at, one.health) for one in states
    )
