"""The rows that hold desired state. SQLite and PostgreSQL alike; `migrations/` creates them.

Every moment is UTC. Nothing here is ever edited by hand: each change goes through a
`control.sql.database.Transaction`, which writes the event and the audit row in the same commit.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

Json = dict[str, Any]


NOT_BACKED_UP = {"info": {"backed_up": False}}
"""`__table_args__` of a table of what was only measured: a restored server measures anew."""


class Moment(TypeDecorator[datetime]):
    """A moment in UTC; SQLite, which knows no zones, is given and gives back UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Table(DeclarativeBase):
    """Base of every table."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it from the class)
        datetime: Moment(),
        Json: JSON(none_as_null=True),
        list[str]: JSON(),
        str: String(255),
        int: BigInteger(),
    }


class Meta(Table):
    """Facts about this database: `store` (id of the store it belongs to), `secret` (hex)."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(Text())


class Counter(Table):
    """Numbers that only grow, in commit order: `event`, `desired`. Taking one locks its row."""

    __tablename__ = "counter"
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int]


class Lease(Table):
    """Who may act alone; `fence` grows with every new holder. Times are the database's."""

    __tablename__ = "lease"
    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    fence: Mapped[int]
    until: Mapped[datetime]


class Server(Table):
    """A server that shares this database; `boot` is new with every start of its control process."""

    __tablename__ = "server"
    id: Mapped[str] = mapped_column(primary_key=True)
    boot: Mapped[str]
    version: Mapped[str]
    admin_url: Mapped[str]
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class User(Table):
    """A person. `password_hash` is argon2id's text; without one the user only has tokens."""

    __tablename__ = "user"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str]
    password_hash: Mapped[str | None] = mapped_column(Text())
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]
    revision: Mapped[int]


class Token(Table):
    """An API token: only the SHA-256 of its text is kept. `hint`: its first characters."""

    __tablename__ = "token"
    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id"), index=True)
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    hint: Mapped[str]
    scopes: Mapped[list[str]]
    rate_per_s: Mapped[float | None]
    burst: Mapped[int | None]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class Session(Table):
    """A browser that logged in; `digest` is the SHA-256 of its cookie."""

    __tablename__ = "session"
    digest: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id"), index=True)
    address: Mapped[str]
    created_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class Invitation(Table):
    """A link that makes one account, once: the first administrator's, or one sent by an admin."""

    __tablename__ = "invitation"
    digest: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class Repository(Table):
    """A git repository people push models to.

    `settings`: formats, protected (ref globs), budgets, signing ("off", "warn", "require"),
    trusted_keys (PEM). Only `deploy_ref` changes what is served.
    """

    __tablename__ = "repository"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    deploy_ref: Mapped[str]
    settings: Mapped[Json]
    created_at: Mapped[datetime]
    revision: Mapped[int]


class Push(Table):
    """One ref of one push, or one other wish to deploy a commit; `control.push_states`
    has its states.

    `sequence` is the event that recorded it first: of two of one repository the later one wins.
    `report` is the text the pusher saw, `reason` why it ended badly. `models` is what it touched:
    model → the digest of its snapshot, or null when the commit removed the model.
    """

    __tablename__ = "push"
    id: Mapped[str] = mapped_column(primary_key=True)
    repository_id: Mapped[str] = mapped_column(ForeignKey("repository.id"), index=True)
    kind: Mapped[str]
    ref: Mapped[str]
    old_commit: Mapped[str]
    new_commit: Mapped[str]
    subject: Mapped[str] = mapped_column(Text())
    author: Mapped[str]
    pusher: Mapped[str]
    address: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    fence: Mapped[int]
    sequence: Mapped[int]
    report: Mapped[str] = mapped_column(Text())
    reason: Mapped[str] = mapped_column(Text())
    models: Mapped[Json]
    received_at: Mapped[datetime]
    accepted_at: Mapped[datetime | None]
    deployed_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class SnapshotRow(Table):
    """An immutable model folder in the store, named by the digest of its bytes.

    `versions`: number (as text) → digest of each version folder in it.
    """

    __tablename__ = "snapshot"
    digest: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(index=True)
    size_bytes: Mapped[int]
    files: Mapped[int]
    versions: Mapped[Json]
    created_at: Mapped[datetime]


class Version(Table):
    """One version of one model for ever: its bytes never change. `source`: a commit, a URL or a
    job. `lineage`: a `control.lineage.Lineage` of one that a job has made."""

    __tablename__ = "version"
    model: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(index=True)
    snapshot_digest: Mapped[str] = mapped_column(ForeignKey("snapshot.digest"))
    size_bytes: Mapped[int]
    files: Mapped[int]
    repository_id: Mapped[str | None] = mapped_column(ForeignKey("repository.id"))
    push_id: Mapped[str | None] = mapped_column(ForeignKey("push.id"))
    source: Mapped[str] = mapped_column(Text())
    pusher: Mapped[str]
    checks: Mapped[Json]
    signer: Mapped[str]
    created_at: Mapped[datetime]
    lineage: Mapped[Json | None]


class Model(Table):
    """What is deployed of a model now; `snapshot_digest` is null once it was removed."""

    __tablename__ = "model"
    name: Mapped[str] = mapped_column(primary_key=True)
    repository_id: Mapped[str | None] = mapped_column(ForeignKey("repository.id"), index=True)
    snapshot_digest: Mapped[str | None] = mapped_column(ForeignKey("snapshot.digest"))
    push_id: Mapped[str | None] = mapped_column(ForeignKey("push.id"))
    commit: Mapped[str]
    deployed_at: Mapped[datetime]
    fence: Mapped[int]
    revision: Mapped[int]


class Alias(Table):
    """A name for a version that can be moved, by compare-and-set on `revision`."""

    __tablename__ = "alias"
    model: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str]
    revision: Mapped[int]


class Route(Table):
    """A public name and the weighted arms behind it, in the order and with the fields of
    `control.desired`. `rollout_id`: the rollout that owns the weights, "" for none."""

    __tablename__ = "route"
    name: Mapped[str] = mapped_column(primary_key=True)
    arms: Mapped[list[Any]] = mapped_column(JSON())
    salt: Mapped[str]
    unit: Mapped[str]
    matches: Mapped[list[Any]] = mapped_column(JSON())
    mirrors: Mapped[list[Any]] = mapped_column(JSON())
    only: Mapped[str]
    rollout_id: Mapped[str]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str]
    revision: Mapped[int]


class LoadState(Table):
    """What a server's gateway last said of a version: the fleet's states and reasons, its health,
    as `control.health.VersionHealth` has it, and when it was loaded, null where it is not."""

    __tablename__ = "load_state"
    server_id: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)  # 0: the model as a whole
    state: Mapped[str]
    reason: Mapped[str] = mapped_column(Text())
    at: Mapped[datetime]
    health: Mapped[str]
    health_code: Mapped[str]
    health_reason: Mapped[str] = mapped_column(Text())
    health_since: Mapped[datetime]
    loaded_at: Mapped[datetime | None]


class PendingChange(Table):
    """An alias or a route that a server has not put into force as desired, and why."""

    __tablename__ = "pending_change"
    server_id: Mapped[str] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(Text(), primary_key=True)  # "alias m@champion"
    reason: Mapped[str] = mapped_column(Text())
    at: Mapped[datetime]


class AcknowledgementRow(Table):
    """What an operator knows of one problem, by its key; `title` is what it was called then."""

    __tablename__ = "acknowledgement"
    key: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(Text())
    note: Mapped[str] = mapped_column(Text())
    by: Mapped[str]
    at: Mapped[datetime]


class Import(Table):
    """A model fetched from a URL; `control.import_states` has its states.

    `url` is whole until it has ended, without its query afterwards. `digest`: of all that was
    fetched. `versions`: number (as text) → digest of each version it brought.
    """

    __tablename__ = "import"
    id: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str] = mapped_column(Text())
    model: Mapped[str]
    version: Mapped[int | None]
    expected_digest: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    fence: Mapped[int]
    progress: Mapped[Json]
    digest: Mapped[str]
    versions: Mapped[Json]
    reason: Mapped[str] = mapped_column(Text())
    by: Mapped[str]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class Event(Table):
    """What happened, in commit order; `id` is the SSE event id, `subject` e.g. "alias:m@best"."""

    __tablename__ = "event"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    kind: Mapped[str]
    subject: Mapped[str]
    actor: Mapped[str]
    data: Mapped[Json]
    __table_args__ = (Index("ix_event_subject_id", "subject", "id"),)


class Audit(Table):
    """Who changed what, from what to what, from where; append-only. `id` is that of its event."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(index=True)
    via: Mapped[str]
    address: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str] = mapped_column(index=True)
    before: Mapped[Json | None]
    after: Mapped[Json | None]
