"""Watched models as rows: begun, changed, given a reference, ended; and how gateways are told."""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from control.desired import DriftRule
from control.drift.findings import views_of, worst
from control.drift.merge import observations
from control.drift.packing import pack_drift, unpack_drift
from control.drift.points import VersionDrift
from control.drift.profile import FILE, read_profile
from control.drift.tables import DriftFinding, DriftReference, DriftWatch
from control.drift.terms import MOST_MODELS, DriftTerms
from control.drift.verdict import NOT_CHOSEN
from control.drift.views import DriftReport, DriftWatchView, ReferenceView
from control.drift.windows import forget_model, read_windows
from control.errors import Conflict, Invalid, NotFound
from control.sql.database import Transaction, expect_revision
from control.tables import LoadState
from control.text import stored, stored_json

_log = logging.getLogger(__name__)

EVERY_VERSION = 0
"""The version of a reference for all that have none of their own."""


LONGEST_PROBLEM = 1_000


@dataclass(frozen=True, slots=True)
class UnusableProfile:
    """A version whose profile cannot be used, why, and when that was found."""

    model: str
    version: int
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class WatchedModel:
    """A row, read."""

    model: str
    terms: DriftTerms
    reference: ReferenceView
    updated_at: datetime


def watch(
    tx: Transaction, model: str, terms: DriftTerms, expected: int | None = None
) -> DriftWatchView:
    """Watch a model on these terms from now on. Raises NotFound for one that no server has,
    Conflict when too many are watched, Stale."""
    tx.alone()
    row = tx.session.get(DriftWatch, model)
    if row is None:
        _check_new(tx.session, model)
        row = DriftWatch(
            model=model,
            terms={},
            reference=stored_json(ReferenceView()),
            created_at=tx.now,
            updated_at=tx.now,
            updated_by=tx.actor.principal,
            revision=0,
        )
        tx.session.add(row)
        before, action = None, "drift.watched"
    else:
        expect_revision(row.revision, expected, f"drift of '{model}'")
        before, action = row.terms, "drift.changed"
    row.terms = asdict(terms)
    _touch(tx, row)
    tx.changed(action, f"model:{model}", before, row.terms)
    tx.desire()
    tx.session.flush()
    return _view(tx.session, row)


def unwatch(tx: Transaction, model: str) -> None:
    """Count no more, and forget what was counted. Raises NotFound."""
    tx.alone()
    row = _found(tx.session, model)
    for table in (DriftFinding, DriftReference):
        tx.session.execute(delete(table).where(table.model == model))
    forget_model(tx, [model])
    tx.session.delete(row)
    tx.changed("drift.unwatched", f"model:{model}", row.terms, None)
    tx.desire()


def refer_to_window(
    tx: Transaction, model: str, version: int, since: datetime, until: datetime
) -> DriftWatchView:
    """Compare with what a version got in a stretch of time; it is kept for as long as it is the
    reference. Raises NotFound, Invalid where too little was counted in it."""
    if until <= since:
        raise Invalid("since lies before until", "since")
    tx.alone()
    row = _found(tx.session, model)
    counts = read_windows(tx.session, model, version, since.timestamp(), until.timestamp())
    least = _terms(row).min_sample
    most = max((observations(one.counts) for one in counts.features), default=0)
    if most < least:
        raise Invalid(
            f"version {version} of '{model}' got {most} values of each feature in that time; a "
            f"reference takes {least} (min_sample)",
            "since",
        )
    words = f"version {version}, {_short(since)} to {_short(until)} UTC, {counts.requests} requests"
    view = ReferenceView("window", version, since, until, words)
    return _refer(tx, row, view, counts)


def refer_to_profile(tx: Transaction, model: str, counts: VersionDrift) -> DriftWatchView:
    """Compare with a profile that was sent. Raises NotFound."""
    tx.alone()
    row = _found(tx.session, model)
    words = f"a profile of {len(counts.features)} features"
    return _refer(tx, row, ReferenceView("profile", words=words), counts)


def refer_to_pushed(tx: Transaction, model: str) -> DriftWatchView:
    """Compare each version with the profile that came with it. Raises NotFound."""
    tx.alone()
    row = _found(tx.session, model)
    view = ReferenceView("pushed", words="the drift_profile.json of each version")
    return _refer(tx, row, view, None)


def refer_to_nothing(tx: Transaction, model: str) -> DriftWatchView:
    """Raises NotFound."""
    tx.alone()
    return _refer(tx, _found(tx.session, model), ReferenceView(), None)


def keep_profiles(tx: Transaction, rows: Iterable[VersionDrift]) -> None:
    """Take the profiles that gateways have found with versions whose models are to be compared with
    them; of one that cannot be used it is kept why, and nothing is compared."""
    given = [row for row in rows if row.profile]
    pushed = {
        one.model for one in (watched_models(tx.session) if given else ())
        if one.reference.kind == "pushed"
    }  # fmt: skip
    for row in given:
        if row.model not in pushed:
            continue
        mine = DriftReference.model == row.model, DriftReference.version == row.version
        tx.session.execute(delete(DriftReference).where(*mine))
        try:
            _keep(tx, row.version, read_profile(row.profile, row.model, row.version))
        except (Invalid, ValueError, OverflowError) as error:
            _log.warning("model %s version %d: %s", row.model, row.version, error)
            _keep(tx, row.version, VersionDrift(row.model, row.version, 0, ()), str(error))


def reference_of(
    session: Session, watched: WatchedModel, version: int
) -> tuple[VersionDrift | None, str]:
    """The version's own, or the one for every version; and why there is none, "" where there is."""
    wanted = select(DriftReference).where(
        DriftReference.model == watched.model,
        DriftReference.version.in_((version, EVERY_VERSION)),
    )
    row = session.scalar(wanted.order_by(DriftReference.version.desc()).limit(1))
    if row is None:
        is_pushed = watched.reference.kind == "pushed"
        return None, f"it came without a {FILE}" if is_pushed else NOT_CHOSEN
    return (None, row.problem) if row.problem else (unpack_drift(row.payload), "")


def unusable_profiles(session: Session) -> list[UnusableProfile]:
    """Of versions that some server has, to be compared with the profile they came with."""
    is_there = select(LoadState.model).where(
        LoadState.model == DriftReference.model, LoadState.version == DriftReference.version
    )
    wanted = select(DriftReference).where(DriftReference.problem != "", is_there.exists())
    rows = session.scalars(wanted.order_by(DriftReference.model, DriftReference.version))
    return [UnusableProfile(row.model, row.version, row.problem, row.at) for row in rows]


def keeps_names(session: Session, model: str) -> bool:
    """Whether the values of strings are kept, which an administrator has chosen."""
    row = session.get(DriftWatch, model)
    return row is not None and _terms(row).names


def is_watched(session: Session, model: str) -> bool:
    return session.get(DriftWatch, model) is not None


def list_watches(session: Session) -> list[DriftWatchView]:
    rows = session.scalars(select(DriftWatch).order_by(DriftWatch.model))
    return [_view(session, row) for row in rows]


def report_of(session: Session, model: str) -> DriftReport:
    """Raises NotFound."""
    row = _found(session, model)
    return DriftReport(_view(session, row), views_of(session, model))


def watched_models(session: Session) -> list[WatchedModel]:
    return [
        WatchedModel(row.model, _terms(row), _reference(row), row.updated_at)
        for row in session.scalars(select(DriftWatch).order_by(DriftWatch.model))
    ]


def drift_rules(session: Session) -> tuple[DriftRule, ...]:
    """What gateways are told."""
    return tuple(
        DriftRule(
            model=one.model,
            percent=one.terms.percent,
            per_s=one.terms.per_s,
            labels=one.terms.labels,
            names=one.terms.names,
            profile=one.reference.kind == "pushed",
        )
        for one in watched_models(session)
    )


def _refer(
    tx: Transaction, row: DriftWatch, view: ReferenceView, counts: VersionDrift | None
) -> DriftWatchView:
    before, was_pushed = row.reference, _reference(row).kind == "pushed"
    if not (was_pushed and view.kind == "pushed"):  # gateways do not send what they have sent
        tx.session.execute(delete(DriftReference).where(DriftReference.model == row.model))
    row.reference = stored_json(view)
    if counts is not None:
        _keep(tx, EVERY_VERSION, msgspec.structs.replace(counts, model=row.model))
    _touch(tx, row)
    tx.changed("drift.reference", f"model:{row.model}", before, row.reference)
    if was_pushed or view.kind == "pushed":
        tx.desire()
    tx.session.flush()
    return _view(tx.session, row)


def _keep(tx: Transaction, version: int, counts: VersionDrift, problem: str = "") -> None:
    made = DriftReference(
        model=counts.model,
        version=version,
        at=tx.now,
        payload=pack_drift(counts),
        problem=stored(problem, LONGEST_PROBLEM),
    )
    tx.session.add(made)


def _check_new(session: Session, model: str) -> None:
    if session.scalar(select(LoadState.model).where(LoadState.model == model).limit(1)) is None:
        raise NotFound(
            f"no server has a model '{model[:150]}'; GET /api/v1/loads lists those there are"
        )
    if (session.scalar(select(func.count()).select_from(DriftWatch)) or 0) >= MOST_MODELS:
        raise Conflict(f"drift of {MOST_MODELS} models is watched already; stop one of them first")


def _found(session: Session, model: str) -> DriftWatch:
    row = session.get(DriftWatch, model)
    if row is None:
        raise NotFound(
            f"drift of '{model[:150]}' is not watched; `modelyard drift watch {model[:150]}` begins"
        )
    return row


def _touch(tx: Transaction, row: DriftWatch) -> None:
    row.updated_at, row.updated_by = tx.now, tx.actor.principal
    row.revision += 1


def _terms(row: DriftWatch) -> DriftTerms:
    """What a later build has added is left out."""
    known: dict[str, Any] = {
        name: value for name, value in row.terms.items() if name in DriftTerms.__slots__
    }
    return DriftTerms(**known)


def _reference(row: DriftWatch) -> ReferenceView:
    return msgspec.convert(row.reference, ReferenceView, strict=False)


def _view(session: Session, row: DriftWatch) -> DriftWatchView:
    terms = _terms(row)
    state, words = worst(session, row.model)
    return DriftWatchView(
        model=row.model,
        percent=terms.percent,
        per_second=terms.per_s,
        window=terms.window_s,
        psi=terms.psi,
        ks=terms.ks,
        alpha=terms.alpha,
        min_sample=terms.min_sample,
        labels=terms.labels,
        names=terms.names,
        reference=_reference(row),
        state=state,
        words=words,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        revision=row.revision,
    )


def _short(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
