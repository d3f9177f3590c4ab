"""One request as raw ASGI: its body is read while its answer is written, and both have deadlines.

A framework's stream would not do: it listens for the end of the connection while it sends, and
swallows the body that git is still to get.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request

from control.http_errors import RequestBodyTooLarge
from repository.lfs.errors import UploadStalled

STALL_S = 60.0
"""The longest time in which a client takes no byte of its answer."""

BODY_S = 30.0
"""For a small body to arrive whole."""

LINGER_BYTES, LINGER_S = 16 * 2**20, 5.0
"""What is still read of a refused request, so that its client gets to reading why."""


class ClientGone(Exception):
    """The client has closed its connection, or reads no more of the answer."""


class RequestBody:
    """A request's body; one reader at a time."""

    def __init__(self, receive: Any, headers: Headers) -> None:
        self._receive = receive
        self._ended = asyncio.Event()
        self._touched = False
        self._waits = headers.get("expect", "").lower() == "100-continue"
        self.length = _length(headers)
        self.has_body = self.length != 0

    @property
    def unread(self) -> bool:
        """Whether some of the body may still come."""
        return self.has_body and not self._ended.is_set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """What has not been read yet. Raises ClientGone."""
        while not self._ended.is_set():
            self._touched = True
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            if not message.get("more_body", False):
                self._ended.set()
            if body := message.get("body", b""):
                yield body

    async def whole(self, most_bytes: int) -> bytes:
        """A small body. Raises RequestBodyTooLarge, UploadStalled, ClientGone."""
        if self.length is not None and self.length > most_bytes:
            raise RequestBodyTooLarge(f"the body has {self.length} bytes, of {most_bytes} allowed")
        content = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                async for chunk in self.chunks():
                    content += chunk
                    if len(content) > most_bytes:
                        raise RequestBodyTooLarge(
                            f"the body has more than the {most_bytes} bytes allowed"
                        )
        except TimeoutError as error:
            raise UploadStalled(
                f"the body did not arrive within {BODY_S:g} s; send it again"
            ) from error
        return bytes(content)

    async def until_gone(self) -> None:
        """Return once the client has gone, after whoever reads the body has come to its end."""
        await self._ended.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def linger(self) -> None:
        """Read on for a moment, for nobody."""
        if self._waits and not self._touched:
            return  # it was never told to go on
        left = LINGER_BYTES
        with suppress(TimeoutError, ClientGone):
            async with asyncio.timeout(LINGER_S):
                async for chunk in self.chunks():
                    left -= len(chunk)
                    if left < 0:
                        return


class ResponseWriter:
    """The answer. Each step raises ClientGone when the client has taken nothing for a while."""

    def __init__(self, send: Any, stall_s: float = STALL_S) -> None:
        self._send = send
        self._stall_s = stall_s
        self.started = False

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.started = True
        packed = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self._pass(type="http.response.start", status=status, headers=packed)

    async def send(self, chunk: bytes) -> None:
        await self._pass(type="http.response.body", body=chunk, more_body=True)

    async def end(self) -> None:
        await self._pass(type="http.response.body", body=b"")

    async def whole(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        """An answer known from its beginning to its end."""
        await self.start(status, {**headers, "Content-Length": str(len(content))})
        await self._pass(type="http.response.body", body=content)

    async def refuse(
        self, status: int, headers: Mapping[str, str], content: bytes, incoming: RequestBody
    ) -> None:
        """An answer to a request whose body may still be on its way: the connection ends."""
        if not incoming.unread:
            await self.whole(status, headers, content)
            return
        closing = {**headers, "Content-Length": str(len(content)), "Connection": "close"}
        await self.start(status, closing)
        await self.send(content)
        await incoming.linger()
        await self.end()

    async def _pass(self, **message: Any) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._send(message)
        except TimeoutError as error:
            raise ClientGone from error


class AsgiExchange(NamedTuple):
    """A request, its body, and its answer."""

    request: Request
    incoming: RequestBody
    outgoing: ResponseWriter


async def while_there(incoming: RequestBody, work: Coroutine[Any, Any, None]) -> None:
    """Do `work` to its end; cancelled, with ClientGone, when the client goes before."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(incoming.until_gone())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.wait((working, watching))
    if working.cancelled():
        raise ClientGone
    working.result()


def _length(headers: Headers) -> int | None:
    """Bytes of the body, None when they are not told."""
    text = headers.get("content-length")
    if text is None:
        return None if "transfer-encoding" in headers else 0
    return int(text) if text.isascii() and text.isdigit() else None
