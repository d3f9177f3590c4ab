"""Objects of Git LFS on their way: taken in, sent, looked at, each by a signed link."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
from starlette.requests import Request

from control.errors import TooMany
from control.git.asgi_exchange import AsgiExchange, ResponseWriter, while_there
from control.git.authorization import find_repository
from control.git.ranges import range_of
from control.http_errors import CredentialsRequired, MalformedRequest, RequestBodyTooLarge
from control.services import ControlServices
from repository.lfs.batch import MEDIA_TYPE
from repository.lfs.errors import UnknownObject, WrongSize
from repository.lfs.store import LfsStore, ObjectRange
from repository.lfs.tokens import LfsTokenScope, Operation, check

SCHEME = "Bearer lfs-"
"""What stands before a link's token in its Authorization header."""

MOST_MOVING = 64
"""Objects on their way at once, in both directions and all repositories together."""

_AGAIN_S = 2.0
_MOST_VERIFY_BYTES = 4096


class LfsTransfers:
    """Who has a link may use it: the batch that gave it has asked who they are."""

    def __init__(
        self, services: ControlServices, store: LfsStore, secret: bytes, stall_s: float
    ) -> None:
        self._services = services
        self._store = store
        self._secret = secret
        self._stall_s = stall_s
        self._moving = 0

    async def receive(self, exchange: AsgiExchange, name: str, oid: str) -> None:
        """Take an object in; it is whole and on the disk when this is answered.

        Raises RequestBodyTooLarge, BadUpload, DiskFull, and what `_scope` raises.
        """
        size_bytes = (await self._scope(exchange.request, "upload", name, oid)).size_bytes
        length = exchange.incoming.length
        if length not in (None, size_bytes):
            message = (
                f"object {oid} was announced with {size_bytes} bytes, not {length}; push again"
            )
            raise WrongSize(message)
        with self._place():
            await self._store.receive(
                name, oid, size_bytes, exchange.incoming.chunks(), self._stall_s
            )
        await exchange.outgoing.whole(200, {}, b"")

    async def send(self, exchange: AsgiExchange, name: str, oid: str) -> None:
        """Send an object, or the range of it that is asked for.

        Raises UnknownObject, BadRange, and what `_scope` raises.
        """
        await self._scope(exchange.request, "download", name, oid)
        await exchange.incoming.whole(0)
        etag, size_bytes = f'"{oid}"', self._store.size(name, oid)
        range_header = exchange.request.headers.get("range")
        if exchange.request.headers.get("if-range", etag) != etag:
            range_header = None
        object_range = range_of(range_header, size_bytes or 0)
        start, end = object_range or (0, None)
        with self._place():
            async with self._store.open_range(name, oid, start, end) as opened:
                headers = _facts(opened, etag, part=object_range is not None)
                await exchange.outgoing.start(200 if object_range is None else 206, headers)
                await while_there(exchange.incoming, _pour(opened, exchange.outgoing))

    async def verify(self, exchange: AsgiExchange, name: str, oid: str) -> None:
        """Whether an object has arrived. Raises UnknownObject, WrongSize, MalformedRequest."""
        scope = await self._scope(exchange.request, "verify", name, oid)
        lfs_object = _object_in(await exchange.incoming.whole(_MOST_VERIFY_BYTES))
        if lfs_object != (oid, scope.size_bytes):
            raise MalformedRequest(
                f"the body is not about object {oid} of {scope.size_bytes} bytes"
            )
        found = self._store.size(name, oid)
        if found is None:
            raise UnknownObject(f"object {oid} has not arrived in '{name}'; push again")
        if found != scope.size_bytes:
            raise WrongSize(f"object {oid} has {found} bytes, not {scope.size_bytes}")
        await exchange.outgoing.whole(200, {"Content-Type": MEDIA_TYPE}, b"{}")

    async def _scope(
        self, request: Request, operation: Operation, name: str, oid: str
    ) -> LfsTokenScope:
        """Raises CredentialsRequired, BadToken, NotFound, RequestBodyTooLarge, DatabaseGone."""
        header = request.headers.get("authorization", "")
        if not header.startswith(SCHEME):
            raise CredentialsRequired("objects move by the links that objects/batch gives")
        scope = check(self._secret, header.removeprefix(SCHEME), operation, name, oid, time.time())
        view = await find_repository(self._services, name)
        most = view.settings.budgets.max_lfs_bytes
        if operation == "upload" and scope.size_bytes > most:
            raise RequestBodyTooLarge(
                f"object {oid} has {scope.size_bytes} bytes, of {most} that '{name}' takes"
            )
        return scope

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._moving >= MOST_MOVING:
            raise TooMany(f"{MOST_MOVING} objects are on their way already", _AGAIN_S)
        self._moving += 1
        try:
            yield
        finally:
            self._moving -= 1


async def _pour(opened: ObjectRange, outgoing: ResponseWriter) -> None:
    async for chunk in opened.chunks():
        await outgoing.send(chunk)
    await outgoing.end()


def _facts(opened: ObjectRange, etag: str, part: bool) -> dict[str, str]:
    facts = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(opened.end - opened.start),
        "Accept-Ranges": "bytes",
        "ETag": etag,
        "Cache-Control": "private",
        "X-Content-Type-Options": "nosniff",
    }
    if part:
        facts["Content-Range"] = f"bytes {opened.start}-{opened.end - 1}/{opened.total}"
    return facts


def _object_in(body: bytes) -> tuple[object, object]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedRequest("the body must be an object with 'oid' and 'size'")
    return document.get("oid"), document.get("size")
