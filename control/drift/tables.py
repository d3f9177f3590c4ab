"""The rows of drift: who is watched, against what, what gateways counted, what was found."""

from datetime import datetime

from sqlalchemy import LargeBinary, Text
from sqlalchemy.orm import Mapped, mapped_column

from control.tables import NOT_BACKED_UP, Json, Table


class DriftWatch(Table):
    """A model whose distributions are watched. `terms`: a `DriftTerms`; `reference`: a
    `ReferenceView`, what was chosen to compare with."""

    __tablename__ = "drift_watch"
    model: Mapped[str] = mapped_column(primary_key=True)
    terms: Mapped[Json]
    reference: Mapped[Json]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str]
    revision: Mapped[int]


class DriftReference(Table):
    """What a version is compared with, as `control.drift.packing` packs it; `version` 0: every one
    without a reference of its own. `problem`: why the profile that came with it cannot be used, ""
    where it can; then there is nothing to compare with."""

    __tablename__ = "drift_reference"
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    payload: Mapped[bytes] = mapped_column(LargeBinary())
    problem: Mapped[str] = mapped_column(Text(), default="")


class DriftWindowRow(Table):
    """What was counted of a version from `at` on, in seconds since the epoch, for `span_s`: by one
    gateway, or, where `server_id` is "", by all of them in an hour."""

    __tablename__ = "drift_window"
    __table_args__ = NOT_BACKED_UP
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[int] = mapped_column(primary_key=True)
    server_id: Mapped[str] = mapped_column(primary_key=True)
    boot: Mapped[str] = mapped_column(primary_key=True)
    span_s: Mapped[int]
    payload: Mapped[bytes] = mapped_column(LargeBinary())


class DriftFinding(Table):
    """The last verdict on a version. `raised` since `since`; `clear`: see
    `control.drift.verdict.DriftAlarm`. `payload`: a `VersionDriftView`, packed."""

    __tablename__ = "drift_finding"
    __table_args__ = NOT_BACKED_UP
    model: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    state: Mapped[str]
    raised: Mapped[bool]
    clear: Mapped[int]
    since: Mapped[datetime | None]
    words: Mapped[str] = mapped_column(Text())
    payload: Mapped[bytes] = mapped_column(LargeBinary())
