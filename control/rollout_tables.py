"""The rows of rollouts: where each stands, and what every server has counted for it."""

from datetime import datetime

from sqlalchemy import ForeignKey, Text
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
    """What one gateway process has counted for a rollout since it first heard of it.

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
