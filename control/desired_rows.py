"""Rows become what gateways are told; `control.desired` says what that is."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.access.grants import grants
from control.desired import DesiredModel, DesiredRoute, DesiredState, Pin
from control.drift.service import drift_rules
from control.experiments.route_arms import running_on_routes, stamp_key
from control.repository_settings import stored_settings
from control.rollouts.queries import KeptVersion, kept
from control.routes.service import every_route
from control.sql.store import known_store
from control.tables import Alias, Counter, Model, Repository, SnapshotRow, Version

Aliases = Mapping[str, Mapping[str, int]]
"""Model → alias → version."""

References = Mapping[str, list[tuple[int, str]]]
"""Model → versions that something refers to, and what does."""


def desired(session: Session, now: datetime) -> DesiredState:
    """Everything gateways should do, from one consistent look. `now` decides which tokens live."""
    aliases, routes = _aliases(session), every_route(session)
    trials = running_on_routes(session)
    return DesiredState(
        revision=_revision(session),
        store=known_store(session),
        models=_models(session, _references(aliases, routes, kept(session))),
        aliases=aliases,
        grants=grants(session, now),
        routes=routes,
        experiments=trials,
        stamp_key=stamp_key(session) if trials else b"",
        drift=drift_rules(session),
    )


def _revision(session: Session) -> int:
    counted = select(Counter.value).where(Counter.name == "desired")
    return session.scalars(counted).one()


def _aliases(session: Session) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in session.scalars(select(Alias).order_by(Alias.model, Alias.name)):
        found[row.model][row.name] = row.version
    return dict(found)


def _references(
    aliases: Aliases, routes: Iterable[DesiredRoute], kept: Iterable[KeptVersion]
) -> References:
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for model, of_model in aliases.items():
        found[model] += [(number, f"alias {alias}") for alias, number in of_model.items()]
    for route in routes:
        for model, number in dict.fromkeys((arm.model, arm.version) for arm in route.arms):
            if number:  # what an alias stands for is pinned by the alias
                found[model].append((number, f"route {route.name}"))
    for one in kept:
        found[one.model].append((one.version, one.by))
    return dict(found)


def _models(session: Session, references: References) -> tuple[DesiredModel, ...]:
    """Deployed models, and models of a folder that something refers to."""
    pins = _pins(session, references)
    deployed = select(Model, Repository).outerjoin(Repository)
    rows = session.execute(deployed.where(Model.snapshot_digest.is_not(None))).all()
    models = {row.name: _model(row, repository, pins) for row, repository in rows}
    for name in references.keys() - models.keys():
        models[name] = DesiredModel(name, pins=pins[name])
    return tuple(models[name] for name in sorted(models))


def _model(
    row: Model, repository: Repository | None, pins: Mapping[str, tuple[Pin, ...]]
) -> DesiredModel:
    return DesiredModel(
        name=row.name,
        snapshot=row.snapshot_digest or "",
        repository=repository.name if repository is not None else "",
        commit=row.commit,
        pins=pins.get(row.name, ()),
        network=repository is not None and stored_settings(repository.settings).network,
    )


def _pins(session: Session, references: References) -> dict[str, tuple[Pin, ...]]:
    deployed = _deployed_versions(session, references)
    kept = select(Version).join(Model, Model.name == Version.model)
    kept = kept.where(Version.model.in_(references), Model.snapshot_digest.is_not(None))
    versions = {(row.model, row.number): row for row in session.scalars(kept)}
    pins = defaultdict(list)
    for model, referred in references.items():
        for number, by in referred:
            version = versions.get((model, number))
            snapshot = _snapshot_of(version, deployed.get(model)) if version else ""
            pins[model].append(Pin(number, snapshot, by))
    return {model: tuple(found) for model, found in pins.items()}


def _deployed_versions(session: Session, references: References) -> dict[str, SnapshotRow]:
    pairs = select(Model.name, SnapshotRow).join(
        SnapshotRow, Model.snapshot_digest == SnapshotRow.digest
    )
    return dict(session.execute(pairs.where(Model.name.in_(references))).all())


def _snapshot_of(version: Version, deployed: SnapshotRow | None) -> str:
    """The deployed snapshot when it has the version, so that its config counts; otherwise the one
    that the version came with."""
    if deployed is not None and deployed.versions.get(str(version.number)) == version.digest:
        return deployed.digest
    return version.snapshot_digest
