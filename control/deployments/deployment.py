"""What is deployed, moved in one go: snapshots, versions, and which snapshot each model has."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from control.deployments.route_references import check_models_unrouted
from control.deployments.sealed_model import SealedModel, SealedVersion
from control.errors import Conflict, Invalid, LostLease
from control.sql.database import Transaction
from control.tables import Alias, Model, Repository, SnapshotRow, Version

LONGEST_MODEL = 128
"""Characters of a model's name: what a public name with its alias and an event's subject take."""

KEPT = timedelta(days=7)
"""How long a snapshot outlives the last that referred to it, for gateways that were told of it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where models come from. `source`: a commit, a URL or a job; `pusher` a principal; `lineage`:
    a `control.lineage.Lineage` as JSON, of what a job has made."""

    repository_id: str | None
    push_id: str | None
    source: str
    pusher: str
    lineage: Mapping[str, Any] | None = None


def check_model_name(name: str) -> None:
    """Raises Invalid for a name that no deployed model can have."""
    bad = not name.isprintable() or any(char in name for char in "/\\@:") or name.strip() != name
    if bad or not 1 <= len(name) <= LONGEST_MODEL:
        raise Invalid(
            f"'{name:.150}' cannot name a model: use 1 to {LONGEST_MODEL} characters without "
            "'/', '\\', '@', ':' and control characters",
            "model",
        )


def deploy_models(
    tx: Transaction, origin: Origin, models: Mapping[str, SealedModel | None]
) -> dict[str, str | None]:
    """Make `models` what is deployed from this origin; its other models are undeployed.

    Returns what changed: model → the digest of its snapshot, None for one undeployed. Call
    `tx.alone()` first. Raises Conflict for a model of another repository, new bytes under an
    existing version, or an undeployed model that an alias or a route refers to; Invalid for a
    bad name.
    """
    present = {name: sealed for name, sealed in models.items() if sealed is not None}
    rows = _rows_of(tx.session, origin, present)
    _check_owner(tx.session, origin, [rows[name] for name in present if name in rows])
    moved = [sealed for name, sealed in present.items() if _moves(rows.get(name), sealed)]
    with tx.session.no_autoflush:  # rows go in together, in the order in which they refer
        _add_snapshots(tx, moved)
        tx.session.flush()
        _add_versions(tx, origin, moved)
        tx.session.flush()
        for sealed in moved:
            _move(tx, origin, rows.get(sealed.model), sealed)
    gone = [row for name, row in rows.items() if name not in present and row.snapshot_digest]
    undeploy(tx, gone, origin)
    if moved or gone:
        tx.desire()
    return {one.model: one.digest for one in moved} | {row.name: None for row in gone}


def undeploy(tx: Transaction, rows: Sequence[Model], origin: Origin | None = None) -> None:
    """Take models out of service. Raises Conflict naming the aliases and routes that refer to
    them."""
    names = [row.name for row in rows]
    _check_unaliased(tx.session, names)
    check_models_unrouted(tx.session, names)
    for row in rows:
        before = _facts(row)
        row.snapshot_digest = None
        _stamp(tx, origin, row)
        tx.changed("model.undeployed", f"model:{row.name}", before, None)
    if rows:
        tx.desire()


def deployed_snapshots(session: Session) -> dict[str, str]:
    """Per deployed model the digest of its snapshot."""
    deployed = select(Model.name, Model.snapshot_digest).where(Model.snapshot_digest.is_not(None))
    return {name: digest for name, digest in session.execute(deployed) if digest}


def forget_snapshots(tx: Transaction) -> None:
    """Snapshots that brought no version and have not been deployed for long: each change of a
    config alone leaves one. Their folders are swept once their rows are gone."""
    tx.alone()
    long_ago = tx.now - KEPT
    used = [
        exists().where(Version.snapshot_digest == SnapshotRow.digest),
        exists().where(Model.snapshot_digest == SnapshotRow.digest),
        exists().where(Model.name == SnapshotRow.model, Model.deployed_at > long_ago),
    ]
    forgotten = delete(SnapshotRow).where(
        SnapshotRow.created_at <= long_ago, *(~one for one in used)
    )
    tx.session.execute(forgotten, execution_options={"synchronize_session": False})


def owner_of(session: Session, model: str) -> str | None:
    """The name of the repository that a model belongs to, deployed or not; None for none."""
    owned = select(Repository.name).join(Model, Model.repository_id == Repository.id)
    return session.scalar(owned.where(Model.name == model))


def changed_versions(session: Session, model: str, digests: Mapping[int, str]) -> list[int]:
    """Which of these versions exist already with another digest, sorted: new bytes under an
    existing number."""
    return _changed(digests, _known_versions(session, [model]).get(model, {}))


def _rows_of(session: Session, origin: Origin, names: Collection[str]) -> dict[str, Model]:
    """Rows of the models to deploy, and of all others from the same repository."""
    found = select(Model).where(Model.name.in_(names))
    rows = list(session.scalars(found))
    if origin.repository_id is not None:
        mine = select(Model).where(Model.repository_id == origin.repository_id)
        rows += session.scalars(mine)
    return {row.name: row for row in rows}


def _check_owner(session: Session, origin: Origin, rows: Sequence[Model]) -> None:
    for row in rows:
        if row.repository_id != origin.repository_id and (row.repository_id or row.snapshot_digest):
            owner = owner_of(session, row.name)
            whose = f"belongs to the repository '{owner}'" if owner else "was imported from a URL"
            raise Conflict(f"the model '{row.name}' {whose}; rename it, or deploy it from there")


def _moves(row: Model | None, sealed: SealedModel) -> bool:
    return row is None or row.snapshot_digest != sealed.digest


def _known_versions(session: Session, models: Collection[str]) -> dict[str, dict[int, str]]:
    """Model → number → digest."""
    kept = select(Version.model, Version.number, Version.digest).where(Version.model.in_(models))
    digests: dict[str, dict[int, str]] = defaultdict(dict)
    for model, number, digest in session.execute(kept):
        digests[model][number] = digest
    return digests


def _changed(digests: Mapping[int, str], before: Mapping[int, str]) -> list[int]:
    return sorted(n for n, digest in digests.items() if before.get(n, digest) != digest)


def _add_snapshots(tx: Transaction, moved: Sequence[SealedModel]) -> None:
    digests = [sealed.digest for sealed in moved]
    there = set(
        tx.session.scalars(select(SnapshotRow.digest).where(SnapshotRow.digest.in_(digests)))
    )
    for sealed in moved:
        check_model_name(sealed.model)
        if sealed.digest not in there:
            tx.session.add(_snapshot(tx, sealed))


def _snapshot(tx: Transaction, sealed: SealedModel) -> SnapshotRow:
    return SnapshotRow(
        digest=sealed.digest,
        model=sealed.model,
        size_bytes=sealed.size_bytes,
        files=sealed.files,
        versions={str(number): one.digest for number, one in sealed.versions.items()},
        created_at=tx.now,
    )


def _add_versions(tx: Transaction, origin: Origin, moved: Sequence[SealedModel]) -> None:
    before = _known_versions(tx.session, [sealed.model for sealed in moved])
    for sealed in moved:
        there = before.get(sealed.model, {})
        digests = {number: one.digest for number, one in sealed.versions.items()}
        if changed := _changed(digests, there):
            numbers = ", ".join(map(str, changed))
            raise Conflict(
                f"the model '{sealed.model}' has other bytes under its existing version {numbers}; "
                "a version never changes: put them under a new number"
            )
        for number in sorted(digests.keys() - there.keys()):
            _add_version(tx, origin, sealed, number)


def _add_version(tx: Transaction, origin: Origin, sealed: SealedModel, number: int) -> None:
    version: SealedVersion = sealed.versions[number]
    tx.session.add(
        Version(
            model=sealed.model,
            number=number,
            digest=version.digest,
            snapshot_digest=sealed.digest,
            size_bytes=version.size_bytes,
            files=version.files,
            repository_id=origin.repository_id,
            push_id=origin.push_id,
            source=origin.source,
            pusher=origin.pusher,
            checks=dict(version.checks),
            signer=version.signer[:255],
            created_at=tx.now,
            lineage=origin.lineage,
        )
    )
    after = {"digest": version.digest, "source": origin.source, "pusher": origin.pusher}
    tx.changed("version.added", f"version:{sealed.model}@{number}", None, after)


def _move(tx: Transaction, origin: Origin, row: Model | None, sealed: SealedModel) -> None:
    before = _facts(row) if row is not None and row.snapshot_digest else None
    if row is None:
        row = Model(name=sealed.model, commit="", deployed_at=tx.now, fence=0, revision=0)
        tx.session.add(row)
    row.snapshot_digest = sealed.digest
    row.repository_id, row.push_id, row.commit = (
        origin.repository_id,
        origin.push_id,
        origin.source[:255],
    )
    _stamp(tx, origin, row)
    facts = {**_facts(row), "versions": sorted(sealed.versions)}
    tx.changed("model.deployed", f"model:{row.name}", before, facts)


def _stamp(tx: Transaction, origin: Origin | None, row: Model) -> None:
    fence = tx.fence.number if tx.fence else 0
    if fence and row.fence > fence:
        raise LostLease(f"the model '{row.name}' was deployed by a newer holder than {fence}")
    row.fence = max(row.fence, fence)
    row.revision += 1
    row.deployed_at = tx.now
    if origin is not None and row.snapshot_digest is None:
        row.push_id, row.commit = origin.push_id, origin.source[:255]


def _facts(row: Model) -> dict[str, str | None]:
    return {"snapshot": row.snapshot_digest, "commit": row.commit, "push": row.push_id}


def _check_unaliased(session: Session, models: Collection[str]) -> None:
    if not models:
        return
    found = select(Alias).where(Alias.model.in_(models)).order_by(Alias.model, Alias.name)
    aliases = defaultdict(list)
    for alias in session.scalars(found):
        aliases[alias.model].append(alias.name)
    if aliases:
        text = "; ".join(f"'{model}' by {', '.join(a)}" for model, a in aliases.items())
        raise Conflict(f"aliases refer to what would be undeployed: {text}; delete these first")
