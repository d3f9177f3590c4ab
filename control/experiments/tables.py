"""The rows of experiments: terms, exposures, feedback, and the sums kept of both per arm."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from control.tables import Json, Table


class Experiment(Table):
    """One experiment; `terms` is what `control.experiments.terms` reads and writes.

    Of its namespace it holds the buckets from `first_bucket` on, as many as the terms' share says,
    while it runs. `conclusion`: what was decided, by whom, and what the numbers said then.
    """

    __tablename__ = "experiment"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    route: Mapped[str] = mapped_column(index=True)
    state: Mapped[str] = mapped_column(index=True)
    terms: Mapped[Json]
    first_bucket: Mapped[int]
    by: Mapped[str]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    stopped_at: Mapped[datetime | None]
    conclusion: Mapped[Json | None]
    revision: Mapped[int]


class Exposure(Table):
    """A unit's first sight of an experiment. `unit`: the key of `control.experiments.stamp`.

    `crossed`: it was later seen in another arm; it counts in its first one all the same.
    """

    __tablename__ = "experiment_exposure"
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id"), primary_key=True)
    unit: Mapped[str] = mapped_column(primary_key=True)
    arm: Mapped[str]
    first_at: Mapped[datetime]
    crossed: Mapped[bool]


class Feedback(Table):
    """One value a unit gave for a metric; `key` tells several of one unit apart.

    `arm` is "" while the unit has not been seen in the experiment: exposures come in batches.
    """

    __tablename__ = "experiment_feedback"
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id"), primary_key=True)
    unit: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    arm: Mapped[str]
    value: Mapped[float]
    at: Mapped[datetime]


class Total(Table):
    """What is kept of one metric in one arm; of the exposures themselves where `metric` is "".

    `n`: values; `ones`: those that were 1 (of exposures: units that crossed); `mean` and `m2` of
    all; `histogram`: packed, for quantiles.
    """

    __tablename__ = "experiment_total"
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id"), primary_key=True)
    arm: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    n: Mapped[int]
    ones: Mapped[int]
    mean: Mapped[float]
    m2: Mapped[float]
    histogram: Mapped[list[Any]] = mapped_column(JSON())


class Point(Table):
    """An interval as it stood `at` some moment, for charts; null bounds are infinite."""

    __tablename__ = "experiment_point"
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    arm: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True)
    units: Mapped[int]
    estimate: Mapped[float | None]
    lower: Mapped[float | None]
    upper: Mapped[float | None]
    decision: Mapped[str]
