"""Imports of models from URLs: every step of their life is one transaction.

A step that was made already is not made again, so that an importer may repeat what a crash cut off.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from control import paging
from control.clock import new_id
from control.deployments.deployment import Origin, check_model_name, deploy_models, owner_of
from control.deployments.sealed_model import SealedModel
from control.errors import Conflict, Invalid, NotFound, TooMany
from control.import_states import UNFINISHED, ImportState, may_follow
from control.paging import SortOrder
from control.sql.database import Transaction
from control.tables import Event, Import
from control.text import stored
from control.views import ImportView, Page
from repository.snapshots.digest import check_model
from repository.snapshots.errors import BadEntry
from repository.sources.digest import read_digest
from repository.sources.errors import BadSource
from repository.sources.progress import Progress
from repository.sources.urls.prefixes import shown_url
from repository.sources.urls.url import admitted

MOST_UNFINISHED = 1_000
LONGEST_REASON, LONGEST_FILE = 65_536, 1_024
LARGEST_VERSION = 10**18 - 1
BEGUN = Progress(0, None, 0, 0, "", 0.0)

_AGAIN_S = 60.0


def begin(
    tx: Transaction,
    url: str,
    model: str,
    version: int | None = None,
    expected_digest: str | None = None,
    *,
    allowed: Sequence[str] = (),
) -> ImportView:
    """Somebody wants a model from a URL. `allowed`: prefixes from the server's settings.

    Raises Invalid naming the field, TooMany, and Conflict for a model of a git repository or for
    what is being imported already.
    """
    _check_wish(url, model, version, allowed)
    digest = _digest(expected_digest)
    tx.alone()
    if owner := owner_of(tx.session, model):
        raise Conflict(
            f"the model '{model}' belongs to the repository '{owner}'; import under another name, "
            "or push it there"
        )
    _check_room(tx.session)
    _check_only(tx.session, url, model, version)
    row = Import(
        id=new_id(tx.now),
        url=url,
        model=model,
        version=version,
        expected_digest=digest,
        state=ImportState.QUEUED,
        fence=0,
        progress=asdict(BEGUN),
        digest="",
        versions={},
        reason="",
        by=tx.actor.principal,
        created_at=tx.now,
        finished_at=None,
    )
    facts = {"url": shown_url(url), "model": model, "version": version, "state": row.state}
    tx.changed(f"import.{row.state}", _subject(row), None, facts)
    tx.session.add(row)
    tx.session.flush()
    return _view(row)


def start(tx: Transaction, import_id: str) -> ImportView:
    """It is being fetched from now on. Raises NotFound, Conflict once it has ended."""
    row = _held(tx, import_id)
    if row.state != ImportState.CHECKING:  # fetched before a crash: it is looked at again
        _step(tx, row, ImportState.FETCHING)
    return _view(row)


def progress(tx: Transaction, import_id: str, fetched: Progress) -> None:
    """Tell how far it is; of one import the latest such event alone is kept.

    Call it about once a second. Raises NotFound, Conflict when it is not being fetched any more.
    """
    row = _held(tx, import_id)
    if row.state not in (ImportState.FETCHING, ImportState.CHECKING):
        raise Conflict(f"the import {row.id} is {row.state}")
    row.progress = _progress_data(fetched)
    kind, subject = "import.progress", _subject(row)
    earlier = delete(Event).where(Event.subject == subject, Event.kind == kind)
    tx.session.execute(earlier, execution_options={"synchronize_session": False})
    tx.happened(kind, subject, model=row.model, **row.progress)


def check(tx: Transaction, import_id: str, digest: str, fetched: Progress | None) -> ImportView:
    """All of it is there, with this digest, and is looked at. Raises NotFound, Conflict."""
    row = _held(tx, import_id)
    row.digest = digest
    if fetched is not None:
        row.progress = _progress_data(fetched)
    _step(tx, row, ImportState.CHECKING)
    return _view(row)


def deploy(
    tx: Transaction, import_id: str, sealed: SealedModel, brought: Collection[int]
) -> ImportView:
    """Make `sealed` what is deployed of the model; `brought` are the versions that came with it.

    Raises NotFound, and Conflict as `deploy_models` does or once it has ended.
    """
    row = _held(tx, import_id)
    if row.state == ImportState.DEPLOYED:
        return _view(row)
    _check_step(row, ImportState.DEPLOYED)
    deploy_models(tx, Origin(None, None, shown_url(row.url), row.by), {row.model: sealed})
    row.versions = {str(number): sealed.versions[number].digest for number in sorted(brought)}
    _step(tx, row, ImportState.DEPLOYED)
    return _view(row)


def finish(tx: Transaction, import_id: str, state: ImportState, reason: str = "") -> ImportView:
    """Its end. Raises NotFound, Conflict when it has ended otherwise."""
    row = _held(tx, import_id)
    _step(tx, row, state, reason)
    return _view(row)


def cancel(tx: Transaction, import_id: str) -> ImportView:
    """Raises NotFound, Conflict when it is deployed, or over, already."""
    return finish(tx, import_id, ImportState.CANCELLED)


def unfinished(session: Session) -> list[ImportView]:
    """What an importer still has to see to, in the order in which it came."""
    waiting = select(Import).where(Import.state.in_(UNFINISHED)).order_by(Import.id)
    return [_view(row) for row in session.scalars(waiting)]


def url_of(session: Session, import_id: str) -> str:
    """The whole URL, for the one who fetches; it is kept until the end. Raises NotFound."""
    return _found(session, import_id).url


def list_imports(
    session: Session,
    *,
    model: str | None = None,
    state: str | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[ImportView]:
    """Newest first. Raises Invalid."""
    query = select(Import)
    if model is not None:
        query = query.where(Import.model == model)
    if state is not None:
        query = query.where(Import.state == _known_state(state))
    return paging.page(
        session, query, SortOrder((Import.id,), newest_first=True), cursor, limit
    ).map(_view)


def get_import(session: Session, import_id: str) -> ImportView:
    """Raises NotFound."""
    return _view(_found(session, import_id))


def _check_wish(url: str, model: str, version: int | None, allowed: Sequence[str]) -> None:
    check_model_name(model)
    try:
        check_model(model)
    except BadEntry as error:
        raise Invalid(str(error), "model") from error
    try:
        admitted(url, allowed)
    except BadSource as error:
        raise Invalid(str(error), "url") from error
    if version is not None and not 1 <= version <= LARGEST_VERSION:
        raise Invalid(f"version is {version}; give 1 to {LARGEST_VERSION}", "version")


def _digest(text: str | None) -> str:
    try:
        return read_digest(text) or ""
    except BadSource as error:
        raise Invalid(str(error), "digest") from error


def _check_room(session: Session) -> None:
    waiting = select(func.count()).select_from(Import).where(Import.state.in_(UNFINISHED))
    if (session.scalar(waiting) or 0) >= MOST_UNFINISHED:
        raise TooMany(f"{MOST_UNFINISHED} imports wait already; try again later", _AGAIN_S)


def _check_only(session: Session, url: str, model: str, version: int | None) -> None:
    """Asked for twice, it would become two versions of the same bytes."""
    same = select(Import.id).where(
        Import.url == url,
        Import.model == model,
        Import.version.is_(None) if version is None else Import.version == version,
        Import.state.in_(UNFINISHED),
        Import.state != ImportState.DEPLOYED,
    )
    if (other := session.scalar(same.limit(1))) is not None:
        raise Conflict(f"'{shown_url(url)}' is being imported as '{model}' already: import {other}")


def _held(tx: Transaction, import_id: str) -> Import:
    tx.alone()
    return _found(tx.session, import_id)


def _found(session: Session, import_id: str) -> Import:
    row = session.get(Import, import_id) if import_id.isprintable() else None
    if row is None:
        raise NotFound(f"there is no import '{import_id:.80}'")
    return row


def _step(tx: Transaction, row: Import, state: ImportState, reason: str = "") -> None:
    if row.state == state:
        return
    _check_step(row, state)
    before = {"state": row.state}
    row.state, row.reason = state, stored(reason, LONGEST_REASON)
    row.fence = tx.fence.number if tx.fence else row.fence
    if state not in UNFINISHED:
        row.finished_at = tx.now
        row.url = shown_url(row.url)  # nobody fetches it again
    after = {"state": str(state)} | ({"reason": row.reason} if reason else {})
    facts = {"url": shown_url(row.url), "model": row.model, "versions": row.versions}
    tx.changed(f"import.{state}", _subject(row), before, after, **facts)


def _check_step(row: Import, state: ImportState) -> None:
    if not may_follow(state, ImportState(row.state)):
        raise Conflict(f"the import {row.id} is {row.state}; it cannot become {state}")


def _known_state(state: str) -> ImportState:
    if state not in tuple(ImportState):
        choices = ", ".join(ImportState)
        raise Invalid(f"'{state:.80}' is no state of an import; {choices} are", "state")
    return ImportState(state)


def _progress_data(fetched: Progress) -> dict[str, Any]:
    return {**asdict(fetched), "file": stored(fetched.file, LONGEST_FILE)}


def _subject(row: Import) -> str:
    return f"import:{row.id}"


def _view(row: Import) -> ImportView:
    same = {
        name: getattr(row, name)
        for name in ImportView.__struct_fields__
        if name not in ("url", "state", "progress")
    }
    return ImportView(
        url=shown_url(row.url),
        state=ImportState(row.state),
        progress=Progress(**row.progress),
        **same,
    )
