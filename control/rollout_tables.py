"""The rows of rollouts: where each stands, what every server has counted, what was seen when."""

from datetime import datetime

from sqlalchemy import ForeignKey, LargeBinary, Text
from sqlalchemy.orm import Mapped, mapped_column

from control.tables import Json, Table

ENDED_PHASES = ("healthy", "degraded", "superseded")
"""Phases of `control.rollouts.state` out of which only a retry leads."""


class Rollout(Table):
    """One candidate's way to a name's traffic. `state` is the truth, what
    `control.rollouts.state` reads and writes; `phase` to `reason` repeat parts of it to be
    searched and shown.

    `stable` is null for the first version of a name. `salt` decides which units the candidate
    gets. `revision` grows with each transition, not with what is only counted.
    """

    __tablename__ = "rollout"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    model: Mapped[str]
    stable: Mapped[int | None]
    candidate: Mapped[int]
    plan: Mapped[Json]
    state: Mapped[Json]
    phase: Mapped[str] = mapped_column(index=True)
    step: Mapped[int]
    weight: Mapped[int]
    mirror: Mapped[int]
    reason: Mapped[str] = mapped_column(Text())
    salt: Mapped[str]
    by: Mapped[str]
    fence: Mapped[int]
    revision: Mapped[int]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class RolloutWindow(Table):
    """What one gateway process has counted for a rollout since it first received it.

    `process` is new with every start of the gateway: its counts begin at nothing, and those of
    the one before stay as they were. `at` is when they were last told.
    """

    __tablename__ = "rollout_window"
    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollout.id"), primary_key=True)
    server_id: Mapped[str] = mapped_column(primary_key=True)
    process: Mapped[str] = mapped_column(primary_key=True)
    arms: Mapped[Json]
    crashes: Mapped[int]
    memory_ratio: Mapped[float | None]
    in_flight: Mapped[int]
    at: Mapped[datetime]


class RolloutMomentRow(Table):
    """What was seen of a rollout at one moment, as `control.rollouts.evidence` packs it; `moved`
    where a move was made."""

    __tablename__ = "rollout_moment"
    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollout.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    moved: Mapped[bool]
    payload: Mapped[bytes] = mapped_column(LargeBinary())
