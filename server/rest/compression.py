"""gzip and deflate, both ways: bounded inflating of requests, deflating of answers.

`server.rest.infer` and `CompressionMiddleware` (for every other path) come here. The functions are
pure; what may take long is run off the loop by `elsewhere`.
"""

import asyncio
import re
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from server.errors import InvalidRequest, RequestTooLarge, ServingError, Unsupported
from server.rest.errors import error_body, visible

CODINGS = "gzip, deflate"
LEAST_BYTES = 1024
"""Answers below this are not worth a client's inflating them."""
BRIEF_BYTES = 64 * 1024
"""Up to this much is (de)compressed on the loop: 0.6 ms at worst, less than a thread's round trip
costs under load."""
_LEVEL = 1
"""zlib's fastest: answers are numbers, and a higher level buys little for several times the CPU."""
_GZIP, _ZLIB, _BARE = 31, 15, -15
_MOST_MEMBERS = 10_000
_PIECE_BYTES = 16 * 1024

_TO_TRITONS_AIO = re.compile(r"/v2(?!/models/.*/generate)")
"""Paths answered uncompressed: tritonclient's aio client asks for gzip with every request and
undoes it for infer alone."""

Coding = str
"""One of "gzip", "deflate", or "" for none."""

T = TypeVar("T")
_pool = ThreadPoolExecutor(2, "compress")


def elsewhere(work: Callable[[], T]) -> "asyncio.Future[T]":
    """`work()` on a thread that does nothing but this."""
    return asyncio.get_running_loop().run_in_executor(_pool, work)


class UnsupportedCoding(Unsupported):
    """The body is compressed in a way this server does not undo; the answer lists the ways."""

    def __init__(self) -> None:
        super().__init__("Unsupported compression type")


def coding_of(content_encoding: str) -> Coding:
    """What a Content-Encoding header means. Raises UnsupportedCoding."""
    coding = content_encoding.strip().lower()
    if coding in ("gzip", "x-gzip"):
        return "gzip"
    if coding == "deflate":
        return "deflate"
    if coding in ("", "identity"):
        return ""
    raise UnsupportedCoding


def accepted_coding(accept_encoding: str) -> Coding:
    """The coding an Accept-Encoding header likes best; gzip before deflate when it likes both."""
    weights: dict[str, float] = {}
    for item in accept_encoding.lower().split(","):
        name, _, rest = item.partition(";")
        weights[name.strip()] = _weight(rest)
    anything = weights.get("*", 0.0)
    gzip = weights.get("gzip", weights.get("x-gzip", anything))
    deflate = weights.get("deflate", anything)
    best = max(gzip, deflate)
    if best <= 0 or best < weights.get("identity", 0.0):
        return ""
    return "gzip" if gzip >= deflate else "deflate"


def _weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def inflate_brief(body: bytes, coding: Coding, limit: int) -> bytes | None:
    """As `inflate`, or None when it takes long enough to be done off the loop."""
    if len(body) > BRIEF_BYTES:
        return None
    try:
        return inflate(body, coding, min(limit, BRIEF_BYTES))
    except RequestTooLarge:
        if limit > BRIEF_BYTES:
            return None
        raise


def inflate(body: bytes, coding: Coding, limit: int) -> bytes:
    """The body before its client compressed it; never holds more than `limit` bytes of it.

    Raises RequestTooLarge when it is larger, InvalidRequest when it is not what `coding` says.
    """
    parts: list[bytes] = []
    left, position = limit, 0
    for _ in range(_MOST_MEMBERS):
        member = _inflate_member(body, position, coding, left)
        if member is None:
            raise RequestTooLarge(
                f"Request body decompresses to more than the maximum allowed value of {limit} "
                "bytes. Use --http-max-input-size to increase the limit."
            )
        parts += member.parts
        left, position = left - member.size, member.end
        if position == len(body):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if coding != "gzip":
            raise InvalidRequest(f"the request body is not valid {coding}: data behind its end")
    raise RequestTooLarge(f"the request body has more than {_MOST_MEMBERS} gzip members")


def _window(body: bytes, coding: Coding) -> int:
    """zlib's window bits. "deflate" means the zlib format; some clients send it without."""
    if coding == "gzip":
        return _GZIP
    is_zlib = len(body) >= 2 and body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0
    return _ZLIB if is_zlib else _BARE


class _CompressedMember(NamedTuple):
    """One compressed stream of a body: what was in it, its bytes, and where it ends."""

    parts: list[bytes]
    size: int
    end: int


def _inflate_member(
    body: bytes, position: int, coding: Coding, most: int
) -> _CompressedMember | None:
    """The stream that begins at `position`; None when it holds more than `most` bytes.

    In pieces: zlib copies what lies behind the end of a stream, and that must not be all the rest
    of a body with thousands of them.
    """
    stream = zlib.decompressobj(_window(body[position : position + 2], coding))
    parts: list[bytes] = []
    size = 0
    while not stream.eof:
        piece = body[position : position + _PIECE_BYTES]
        if not piece:
            raise InvalidRequest(f"the request body is not valid {coding}: it ends too early")
        try:
            part = stream.decompress(piece, most - size + 1)
        except zlib.error as error:
            raise InvalidRequest(f"the request body is not valid {coding}: {error}") from error
        size += len(part)
        if size > most:
            return None
        parts.append(part)
        position += len(piece) - len(stream.unused_data)
    return _CompressedMember(parts, size, position)


def deflate(body: bytes, coding: Coding) -> bytes:
    """`body` compressed."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP if coding == "gzip" else _ZLIB)
    return stream.compress(body) + stream.flush()


class CompressionMiddleware:
    """An ASGI application that reads compressed requests and sends compressed answers.

    Answers in one piece are compressed, streams are not; nor are those of `_TO_TRITONS_AIO`.
    """

    def __init__(self, app: Any, limit: int) -> None:
        """`limit`: bytes a body may have, before and after decompression."""
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sent, accepted = "", ""
        for name, value in scope.get("headers", ()):
            if name == b"content-encoding":
                sent = value.decode("latin-1")
            elif name == b"accept-encoding":
                accepted = value.decode("latin-1")
        answer_coding = accepted_coding(accepted) if accepted else ""
        if answer_coding and not _TO_TRITONS_AIO.match(scope["path"]):
            send = _CompressingSend(send, answer_coding)
        try:
            if sent and (coding := coding_of(sent)):
                receive = _once(await self._inflated(receive, coding), receive)
                scope = {**scope, "headers": _of_plain_body(scope["headers"])}
        except ServingError as error:
            await _send_error(send, error)
            return
        await self._app(scope, receive, send)

    async def _inflated(self, receive: Any, coding: Coding) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._limit:
                raise RequestTooLarge(
                    f"Request body exceeds the maximum allowed value of {self._limit} bytes. "
                    "Use --http-max-input-size to increase the limit."
                )
            if not message.get("more_body"):
                break
        whole = bytes(body)
        brief = inflate_brief(whole, coding, self._limit)
        if brief is not None:
            return brief
        return await elsewhere(lambda: inflate(whole, coding, self._limit))


def _of_plain_body(headers: Any) -> list[tuple[bytes, bytes]]:
    about_body = (b"content-encoding", b"content-length", b"transfer-encoding")
    return [(name, value) for name, value in headers if name not in about_body]


def _once(body: bytes, receive: Any) -> Any:
    """A `receive` that hands over `body`, then what comes after it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return messages.pop() if messages else await receive()

    return replay


class _CompressingSend:
    """A `send` that compresses an answer which comes in one piece."""

    def __init__(self, send: Any, coding: Coding) -> None:
        self._send = send
        self._coding = coding
        self._start: Any = None

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            body = message.get("body", b"")
            if not message.get("more_body") and _worth_it(start, body):
                body = await _deflated(body, self._coding)
                message = {**message, "body": body}
                start = {**start, "headers": _headers(start["headers"], body, self._coding)}
            await self._send(start)
        await self._send(message)


def _worth_it(start: Any, body: bytes) -> bool:
    if len(body) < LEAST_BYTES or start["status"] != 200:
        return False
    return all(name.lower() != b"content-encoding" for name, _ in start["headers"])


async def _deflated(body: bytes, coding: Coding) -> bytes:
    if len(body) <= BRIEF_BYTES:
        return deflate(body, coding)
    return await elsewhere(lambda: deflate(body, coding))


def _headers(headers: Any, body: bytes, coding: Coding) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return [
        *kept,
        (b"content-length", b"%d" % len(body)),
        (b"content-encoding", coding.encode()),
        (b"vary", b"accept-encoding"),
    ]


async def _send_error(send: Any, error: ServingError) -> None:
    status, text = visible(error)
    headers = [(b"content-type", b"application/json")]
    if isinstance(error, UnsupportedCoding):
        headers.append((b"accept-encoding", CODINGS.encode()))
    body = error_body(text)
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
