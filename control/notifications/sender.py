"""Sends a message: one POST, to an address that was judged when it was connected to, no redirects.

Everything together has one deadline, and little of the answer is read.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import httptools

from control.errors import Invalid
from control.notifications.messages import OutgoingMessage
from control.notifications.policy import WebhookAnswer
from control.notifications.targets import WebhookTarget, refusal, target_of
from repository.sources.urls.addresses import why_not_public

SEND_S = 10.0
"""For resolving, connecting, sending and reading, all together."""

MOST_ADDRESSES = 4
"""Addresses of one name that are tried."""

LONGEST_ANSWER_BYTES, LONGEST_TEXT = 65_536, 500
"""Of an answer that are read, head and body; and characters of the body that are kept."""

RESOLVERS = 4
"""Threads that wait for name servers: their own, so that a dead one stops nothing else."""

_Address = tuple[Any, ...]


class WebhookSender:
    """On the loop. `allowed`: prefixes of URLs from the settings, see `target_of`."""

    def __init__(self, allowed: Sequence[str] = (), send_s: float = SEND_S) -> None:
        self._allowed = tuple(allowed)
        self._send_s = send_s
        self._resolvers = ThreadPoolExecutor(RESOLVERS, "webhook-resolver")
        self._tls: ssl.SSLContext | None = None

    async def send(self, message: OutgoingMessage) -> WebhookAnswer:
        """What the receiver said, or why there is no answer; raises nothing but cancellation."""
        began = monotonic()
        answer = await self._sent(message)
        return WebhookAnswer(
            answer.status,
            answer.text,
            answer.error,
            monotonic() - began,
            answer.retry_after_s,
        )

    def close(self) -> None:
        """Threads that still wait for a name server are left behind."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def _sent(self, message: OutgoingMessage) -> WebhookAnswer:
        try:
            target = target_of(message.url, self._allowed)
            async with asyncio.timeout(self._send_s):
                return await self._exchange(message, target)
        except TimeoutError:
            return WebhookAnswer(0, error=f"no answer within {self._send_s:g} s")
        except (Invalid, _NoAnswer) as error:
            return WebhookAnswer(0, error=str(error))
        except ssl.SSLCertVerificationError as error:
            return WebhookAnswer(0, error=f"its certificate is not valid: {error.verify_message}")
        except (OSError, ssl.SSLError) as error:
            words = error.strerror or str(error) or type(error).__name__
            return WebhookAnswer(0, error=f"the connection failed: {words}")
        except httptools.HttpParserError as error:
            return WebhookAnswer(0, error=f"the answer is not HTTP: {error}")

    async def _exchange(self, message: OutgoingMessage, target: WebhookTarget) -> WebhookAnswer:
        connected = await self._connect(message.url, target)
        tls: dict[str, Any] = {}
        if target.tls:
            tls = {"ssl": await self._context(), "server_hostname": target.host}
        try:
            reader, writer = await asyncio.open_connection(sock=connected, **tls)
        except BaseException:
            connected.close()
            raise
        try:
            writer.write(_request(target, message.headers, message.body))
            await writer.drain()
            return await _answer(reader)
        finally:
            writer.transport.abort()

    async def _connect(self, url: str, target: WebhookTarget) -> socket.socket:
        """To the first public address that takes it. Raises _NoAnswer, OSError."""
        loop = asyncio.get_running_loop()
        failed: Exception | None = None
        for family, _, protocol, _, address in (await self._resolve(target))[:MOST_ADDRESSES]:
            if not target.trusted and (why := why_not_public(str(address[0]))):
                failed = failed or _NoAnswer(refusal(url, why))
                continue
            connecting = socket.socket(family, socket.SOCK_STREAM, protocol)
            connecting.setblocking(False)
            try:
                await loop.sock_connect(connecting, address)
            except BaseException as error:
                connecting.close()
                if not isinstance(error, OSError):
                    raise
                failed = error
            else:
                return connecting
        raise failed or _NoAnswer(f"'{target.host}' has no address")

    async def _resolve(self, target: WebhookTarget) -> list[_Address]:
        """Raises _NoAnswer."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._resolvers, _lookup, target.host, target.port)
        except (socket.gaierror, UnicodeError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise _NoAnswer(f"'{target.host}' cannot be resolved: {words}") from error

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls


class _NoAnswer(Exception):
    """Nobody was asked, or nobody can be; the message says why."""


class _AnswerParser:
    """httptools' callbacks: the last response's head, and the beginning of its body."""

    def __init__(self) -> None:
        self.ended = False
        self.body = bytearray()
        self.headers: dict[bytes, bytes] = {}
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        self.body.clear()
        self.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.ended = self.parser.get_status_code() >= 200  # before it come "continue" and hints

    def answer(self) -> WebhookAnswer:
        asked = self.headers.get(b"retry-after", b"").decode("latin-1").strip()
        return WebhookAnswer(
            self.parser.get_status_code(),
            _printable(bytes(self.body)),
            retry_after_s=float(asked) if asked.isdecimal() and len(asked) < 10 else 0.0,
        )


async def _answer(reader: asyncio.StreamReader) -> WebhookAnswer:
    """Raises _NoAnswer for a connection that ends before an answer."""
    found, read = _AnswerParser(), 0
    while not found.ended and read < LONGEST_ANSWER_BYTES:
        chunk = await reader.read(LONGEST_ANSWER_BYTES - read)
        if not chunk:
            break  # an answer without a length ends with its connection
        read += len(chunk)
        try:
            found.parser.feed_data(chunk)
        except httptools.HttpParserUpgrade:
            break
        except httptools.HttpParserError:
            if not found.ended:  # what comes behind the answer is nothing to us
                raise
    if found.parser.get_status_code() < 200:
        raise _NoAnswer("the receiver ended the connection without an answer")
    return found.answer()


def _request(target: WebhookTarget, headers: Mapping[str, str], body: bytes) -> bytes:
    head = {
        "Host": target.authority,
        "User-Agent": "modelyard",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "*/*",
        "Connection": "close",
        **headers,
    }
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {text}" for name, text in head.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def _lookup(host: str, port: int) -> list[_Address]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _printable(raw: bytes) -> str:
    text = raw[: 4 * LONGEST_TEXT].decode(errors="replace")
    return "".join(sign if sign.isprintable() else " " for sign in text).strip()[:LONGEST_TEXT]
