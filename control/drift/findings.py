"""The last verdict on each version as a row: written with its event, read for reports."""

import zlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from control.drift.points import (
    DriftScores,
    FeatureDrift,
    VersionDrift,
    VersionDriftScores,
)
from control.drift.tables import DriftFinding
from control.drift.terms import DriftTerms
from control.drift.verdict import DriftAlarm, DriftState, DriftVerdict, next_alarm
from control.drift.views import DriftStateName, VersionDriftView, feature_views
from control.sql.database import Transaction

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(VersionDriftView)

MOST_VERSIONS = 8
"""Judged of one model: the newest that got requests."""


KEEP_RAISED = timedelta(hours=1)
"""Gateways send what they counted each minute or less often, and a model may rest."""


@dataclass(frozen=True, slots=True)
class RaisedDrift:
    """A version that has drifted, since when."""

    model: str
    version: int
    words: str
    since: datetime | None


def record_verdict(
    tx: Transaction, current: VersionDrift, verdict: DriftVerdict, terms: DriftTerms
) -> None:
    """Keep a verdict of what was counted in the terms' window until now; that a version has
    drifted, and that it has ended, are events."""
    row = tx.session.get(DriftFinding, (current.model, current.version))
    before = DriftAlarm() if row is None else DriftAlarm(row.raised, row.clear)
    alarm = next_alarm(before, verdict.state, terms)
    if row is None:
        row = DriftFinding(model=current.model, version=current.version, since=None)
    if alarm.raised != before.raised:
        tx.happened(
            "model.drifted" if alarm.raised else "model.drift_ended",
            f"model:{current.model}",
            version=current.version,
            reason=verdict.words,
        )
        row.since = tx.now if alarm.raised else None
    view = VersionDriftView(
        current.version,
        verdict.state.value,
        verdict.words,
        tx.now - timedelta(seconds=terms.window_s),
        tx.now,
        current.requests,
        current.left_out,
        feature_views(verdict),
    )
    row.at, row.state, row.raised, row.clear = tx.now, verdict.state, alarm.raised, alarm.clear
    row.words, row.payload = verdict.words, zlib.compress(_encoder.encode(view), 1)
    tx.session.add(row)
    tx.session.flush()


def forget_findings(tx: Transaction, model: str, versions: Collection[int]) -> None:
    """Of all but these versions of a model: nothing was counted of them lately. One that is raised
    ends without a word when that has been so for `KEEP_RAISED`: until then it is the same alarm."""
    is_over = DriftFinding.raised.is_(False) | (DriftFinding.at < tx.now - KEEP_RAISED)
    mine = DriftFinding.model == model, DriftFinding.version.not_in(versions), is_over
    tx.session.execute(delete(DriftFinding).where(*mine))


def judged_at(session: Session) -> dict[str, datetime]:
    """When each model's versions were last judged, the earliest of them."""
    rows = session.execute(select(DriftFinding.model, DriftFinding.at)).all()
    found: dict[str, datetime] = {}
    for model, at in rows:
        found[model] = min(at, found.get(model, at))
    return found


def views_of(session: Session, model: str) -> list[VersionDriftView]:
    """The newest version first."""
    wanted = select(DriftFinding.payload).where(DriftFinding.model == model)
    payloads = session.scalars(wanted.order_by(DriftFinding.version.desc()))
    return [_unpacked(payload) for payload in payloads]


_WORST: tuple[DriftState, ...] = (
    DriftState.DRIFTED,
    DriftState.STABLE,
    DriftState.WAITING,
    DriftState.NO_REFERENCE,
)


def worst(session: Session, model: str) -> tuple[DriftStateName, str]:
    """The state of a model and why."""
    columns = DriftFinding.state, DriftFinding.version, DriftFinding.words
    rows = session.execute(select(*columns).where(DriftFinding.model == model)).all()
    if not rows:
        return DriftState.WAITING.value, "no request has been looked at"
    state, version, words = min(rows, key=lambda row: (_WORST.index(DriftState(row[0])), -row[1]))
    return DriftState(state).value, f"version {version}: {words}"


def raised_drift(session: Session) -> list[RaisedDrift]:
    """Every version that has drifted and not come back."""
    wanted = select(DriftFinding).where(DriftFinding.raised)
    rows = session.scalars(wanted.order_by(DriftFinding.model, DriftFinding.version))
    return [RaisedDrift(row.model, row.version, row.words, row.since) for row in rows]


def scores(session: Session) -> DriftScores:
    """For the metrics of gateways."""
    rows = session.execute(
        select(DriftFinding.model, DriftFinding.payload).order_by(
            DriftFinding.model, DriftFinding.version
        )
    )
    return DriftScores(tuple(_scores(model, _unpacked(payload)) for model, payload in rows))


def _scores(model: str, view: VersionDriftView) -> VersionDriftScores:
    features = [
        FeatureDrift(
            f"{one.role} {one.name}",
            _number(one.psi),
            _number(one.ks),
            one.state == "drifted",
        )
        for one in view.features
    ]
    return VersionDriftScores(model, view.version, view.state, tuple(features))


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _unpacked(payload: bytes) -> VersionDriftView:
    return _decoder.decode(zlib.decompress(payload))
