"""Mutes: no messages about some models for a while, with who said so and why."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from control import paging
from control.clock import new_id, text_of
from control.errors import Conflict, Invalid, NotFound
from control.notifications import terms
from control.notifications.kinds import ABOUT_VERSIONS, NotificationKind
from control.notifications.tables import NotificationMute
from control.notifications.views import MuteView
from control.paging import SortOrder
from control.sql.database import Transaction
from control.text import stored
from control.views import Page

MOST_MUTES = 1_000
LONGEST_NOTE, LONGEST_S = 1_000, 366 * 86_400
KEPT = timedelta(days=7)
"""How long a mute that is over is still listed."""


def create_mute(
    tx: Transaction,
    model: str,
    kinds: Sequence[str] = (),
    for_s: int | None = None,
    note: str = "",
) -> MuteView:
    """From now on, for so many seconds; for good without. Raises Invalid, Conflict."""
    (model,) = terms.read_models([model], "model")
    wanted = terms.read_kinds(kinds)
    if for_s is not None and not 1 <= for_s <= LONGEST_S:
        raise Invalid(f"for_s is {for_s}; give 1 to {LONGEST_S} seconds, or none for good", "for_s")
    tx.alone()
    number = tx.session.scalar(select(func.count()).select_from(NotificationMute)) or 0
    if number >= MOST_MUTES:
        raise Conflict(f"there are {number} mutes; delete one first")
    row = NotificationMute(
        id=new_id(tx.now),
        model=model,
        kinds=wanted,
        note=stored(note, LONGEST_NOTE),
        until=None if for_s is None else tx.now + timedelta(seconds=for_s),
        created_at=tx.now,
        by=tx.actor.principal,
    )
    tx.session.add(row)
    tx.changed("mute.created", f"mute:{row.id}", None, _facts(row), model=model)
    tx.session.flush()
    return _view(row)


def delete_mute(tx: Transaction, mute_id: str) -> None:
    """Messages are sent again. Raises NotFound."""
    tx.alone()
    row = tx.session.get(NotificationMute, mute_id) if mute_id.isprintable() else None
    if row is None:
        raise NotFound(f"there is no mute '{mute_id:.80}'")
    tx.session.delete(row)
    tx.changed("mute.deleted", f"mute:{row.id}", _facts(row), None, model=row.model)


def list_mutes(
    session: Session, *, cursor: str | None = None, limit: int = paging.USUAL
) -> Page[MuteView]:
    """Newest first, those lately over among them. Raises Invalid for a bad cursor or limit."""
    order = SortOrder((NotificationMute.id,), newest_first=True)
    return paging.page(session, select(NotificationMute), order, cursor, limit).map(_view)


def mutes_in_force(tx: Transaction) -> list[NotificationMute]:
    lasts = or_(NotificationMute.until.is_(None), NotificationMute.until > tx.now)
    return list(tx.session.scalars(select(NotificationMute).where(lasts)))


def is_acknowledged(
    known: Collection[str], kind: str, models: Collection[str], version: int
) -> bool:
    """Whether a notice tells only of a problem that is `known`: "m", or "m version 2"."""
    if not known or kind not in ABOUT_VERSIONS:
        return False
    return any(f"{model} version {version}" in known or model in known for model in models)


def is_muted(mutes: Sequence[NotificationMute], kind: str, models: Collection[str]) -> bool:
    return any(terms.covers((one.model,), one.kinds, kind, models) for one in mutes)


def forget_mutes(tx: Transaction) -> None:
    """Those that were over long ago."""
    over = NotificationMute.until <= tx.now - KEPT
    tx.session.execute(delete(NotificationMute).where(over))


def _view(row: NotificationMute) -> MuteView:
    kinds = tuple(NotificationKind(one) for one in row.kinds)
    return MuteView(row.id, row.model, kinds, row.note, row.until, row.created_at, row.by)


def _facts(row: NotificationMute) -> dict[str, Any]:
    until = None if row.until is None else text_of(row.until)
    return {"model": row.model, "kinds": [*row.kinds], "note": row.note, "until": until}
