"""This server and those beside it: who is alive, what is set, and a backup of it all."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from anyio import WouldBlock
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Recheck
from control.api.pipe_stream import PIECE_BYTES, piped
from control.api.responses import page_of
from control.errors import TooMany
from control.servers import list_servers
from control.services import ControlServices
from control.views import ServerView, SettingView, ThisServerView

_ADMIN = Access(Action.ADMIN)
_GIT = "/git/{repository}.git"


def this_server(call: AuthorizedCall) -> EndpointResult:
    facts = call.services.facts
    url = call.services.url().rstrip("/")
    view = ThisServerView(facts.server_id, facts.version, url, url + _GIT)
    return EndpointResult(view)


def servers(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        views = list_servers(session, call.now)
    return page_of(call, views, lambda view: view.id)


def settings(call: AuthorizedCall) -> EndpointResult:
    views = sorted(call.services.facts.settings, key=lambda view: view.name)
    return page_of(call, views, lambda view: view.name)


async def backup(call: AuthorizedCall, request: Request, _: Recheck) -> Response:
    """The beginning is awaited here, so that a backup that cannot begin is an error (there is no
    room for its rows, say); one that breaks off later ends the connection before its time."""
    pieces = _pieces(call.services)
    first = bytearray()
    async for piece in pieces:
        first += piece
        if len(first) >= PIECE_BYTES:
            break

    async def streamed() -> AsyncIterator[bytes]:
        async with aclosing(pieces):
            yield bytes(first)
            async for piece in pieces:
                yield piece

    disposition = f'attachment; filename="modelyard-{call.now:%Y%m%d-%H%M%S}.tar"'
    headers = {"Content-Disposition": disposition, "Cache-Control": "no-store"}
    return StreamingResponse(streamed(), headers=headers, media_type="application/x-tar")


async def _pieces(services: ControlServices) -> AsyncGenerator[bytes]:
    """Raises TooMany."""
    one = object()
    try:
        services.backups.acquire_on_behalf_of_nowait(one)
    except WouldBlock:
        raise TooMany("other backups are being taken; try again later", 30.0) from None
    try:
        async with aclosing(piped(services.archive)) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        services.backups.release_on_behalf_of(one)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/server",
        access=Access(None),
        tag="Server",
        summary="The server that answers, and where to push",
        run=this_server,
        gives=ThisServerView,
    ),
    Operation(
        verb="GET",
        path="/servers",
        access=Access(Action.READ),
        tag="Server",
        summary="The servers that share this database",
        run=servers,
        list_of=ServerView,
    ),
    Operation(
        verb="GET",
        path="/settings",
        access=_ADMIN,
        tag="Server",
        summary="Every setting in force, and where its value came from",
        run=settings,
        list_of=SettingView,
    ),
    Operation(
        verb="POST",
        path="/backup",
        access=_ADMIN,
        tag="Server",
        summary="A tar archive of the whole state, taken while the server runs",
        stream=backup,
        media_type="application/x-tar",
    ),
)
