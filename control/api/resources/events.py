"""What happened, as a stream or in pages, and the audit: who changed what."""

from datetime import datetime

import msgspec
from anyio import WouldBlock, to_thread
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param, Recheck
from control.api.responses import from_page, response
from control.errors import ControlError, DatabaseGone, TooMany
from control.events.event_stream import EventSource, EventStream, StreamEvent, frame
from control.events.history import AuditFilter, audit_page, events_after, first_event, last_event
from control.http_errors import MalformedRequest, RequestError
from control.paging import cursor_of, key_of
from control.views import AuditView, EventView, Page

EVENT_STREAM = "text/event-stream"
AT_ONCE = 200
"""Events read from the table for one piece of a stream."""

_READ = Access(Action.READ)
_MOST_PATTERNS = 20


class EventsForgotten(msgspec.Struct, frozen=True):
    """Said first in a stream from an event that is not kept any more; `first`: the oldest kept."""

    first: int


def list_(call: AuthorizedCall) -> EndpointResult:
    """Oldest first; a full page has a cursor, which goes on behind the last one."""
    limit, after = call.paging()["limit"], _after(call)
    newest_first = bool(call.query.get("newest"))
    with call.services.database.reading() as session:
        views = events_after(session, after, limit, *_patterns(call), newest_first)
    if newest_first:
        return from_page(Page(tuple(views)))
    following = cursor_of((views[-1].id,)) if len(views) == limit else None
    return from_page(Page(tuple(views), following))


async def events(call: AuthorizedCall, request: Request, recheck: Recheck) -> Response:
    """A stream for who asks for one with Accept, a page of JSON for everybody else."""
    if request.method == "HEAD" or EVENT_STREAM not in request.headers.get("accept", ""):
        answer = await to_thread.run_sync(list_, call, limiter=call.services.threads)
        return response(answer, request, request.scope["request_id"])
    resumed = request.headers.get("last-event-id", "")
    if resumed and not (resumed.isascii() and resumed.isdigit() and len(resumed) < 19):
        raise MalformedRequest(f"Last-Event-ID is '{resumed[:40]}', which is no event's id")
    start, opening = await to_thread.run_sync(
        _start, call, int(resumed) if resumed else None, limiter=call.services.threads
    )
    try:
        call.services.streams.acquire_on_behalf_of_nowait(request)
    except WouldBlock:
        raise TooMany("too many clients follow the events already", 5.0) from None

    def ended() -> None:
        call.services.streams.release_on_behalf_of(request)

    return EventStream(_source(call, recheck), start, opening, ended)


def audit(call: AuthorizedCall) -> EndpointResult:
    query = call.query
    filters = AuditFilter(
        actor=query.get("actor", ""),
        action=query.get("action", ""),
        subject=query.get("subject", ""),
        since=query.get("since"),
        until=query.get("until"),
    )
    paging = call.paging()
    with call.services.database.reading() as session:
        return from_page(audit_page(session, paging["cursor"], filters, paging["limit"]))


def _start(call: AuthorizedCall, resumed: int | None) -> tuple[int, bytes]:
    """Behind which event to begin, and what to say first. Without a wish: what comes from now on.

    An id that is not there yet is one of a time before a restore.
    """
    after = resumed if resumed is not None else call.query.get("after")
    with call.services.database.reading() as session:
        newest, oldest = last_event(session), first_event(session)
    if after is None:
        return newest, b""
    forgotten = 0 < after < oldest - 1
    opening = (
        frame(StreamEvent(oldest - 1, "events.forgotten", EventsForgotten(oldest)))
        if forgotten
        else b""
    )
    return min(after, newest), opening


def _source(call: AuthorizedCall, recheck: Recheck) -> EventSource:
    services = call.services

    def look(event_id: int) -> tuple[list[StreamEvent], int]:
        with services.database.reading() as session:
            return _next(session, call, event_id)

    async def read(event_id: int) -> tuple[list[StreamEvent], int]:
        return await to_thread.run_sync(look, event_id, limiter=services.threads)

    async def still() -> bool:
        try:
            await recheck()
        except DatabaseGone:
            raise
        except (ControlError, RequestError):
            return False
        return True

    return EventSource(read, still, services.commits, services.heartbeat_s, services.slowest_s)


def _next(session: Session, call: AuthorizedCall, event_id: int) -> tuple[list[StreamEvent], int]:
    """The next events, and up to which id they are all."""
    newest = last_event(session)
    views = events_after(session, event_id, AT_ONCE, *_patterns(call))
    events = [StreamEvent(view.id, view.kind, view) for view in views]
    return events, events[-1].id if len(events) == AT_ONCE else max(event_id, newest)


def _after(call: AuthorizedCall) -> int:
    cursor = call.paging()["cursor"]
    if cursor is None:
        return int(call.query.get("after", 0))
    (event_id,) = key_of(cursor, [int])
    return int(event_id)


def _patterns(call: AuthorizedCall) -> tuple[list[str], list[str]]:
    """Kinds and subjects asked for, separated by commas."""
    kinds, subjects = (
        [one for one in call.query.get(name, "").split(",") if one] for name in ("kind", "subject")
    )
    if len(kinds) + len(subjects) > _MOST_PATTERNS:
        raise MalformedRequest(f"at most {_MOST_PATTERNS} kinds and subjects at once", "kind")
    return kinds, subjects


OPERATIONS = (
    Operation(
        verb="GET",
        path="/events",
        access=_READ,
        tag="Events",
        summary="Events: a stream (Accept: text/event-stream) that Last-Event-ID resumes, or pages",
        stream=events,
        list_of=EventView,
        also=EVENT_STREAM,
        query=(
            Param("after", "Events later than this id; a stream without it begins now.", int),
            Param("kind", "Kinds, separated by commas; alias.* for all of alias."),
            Param("subject", "Subjects, separated by commas, e.g. model:digits or push:*."),
            Param("newest", "The last ones, newest first, in one page.", bool),
        ),
    ),
    Operation(
        verb="GET",
        path="/audit",
        access=Access(Action.AUDIT),
        tag="Events",
        summary="Who changed what, from what to what, from where; newest first",
        run=audit,
        list_of=AuditView,
        query=(
            Param("actor", "Only this principal's, e.g. user:ada."),
            Param("action", "Only actions that begin so, e.g. alias."),
            Param("subject", "Only about this, e.g. alias:digits@champion."),
            Param("since", "From this moment on.", datetime),
            Param("until", "Before this moment.", datetime),
        ),
    ),
)
