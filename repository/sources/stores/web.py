"""Asks web servers: every hop of a redirect checked, and no private address ever connected to."""

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import orjson
from yarl import URL

from repository.sources.errors import BadSource, FetchFailed, Interrupted
from repository.sources.urls.addresses import why_not_public
from repository.sources.urls.prefixes import Prefix, shown_url
from repository.sources.urls.url import CREDENTIALS, Hop, hop, private, redirected

MOST_REDIRECTS = 5
LARGEST_JSON_BYTES = 32 << 20
LONGEST_PAUSE_S = 60.0

_REDIRECTS = (301, 302, 303, 307, 308)
_PASSING = (408, 425, 429, 500, 502, 503, 504)

Credentials = Callable[[Hop], Mapping[str, str]]
"""The headers that prove who we are to one hop; most hops get none."""


class FetchClient:
    """Connections of one fetch. Only what lies below a `trusted` prefix may be private.

    `credentials` is asked again for every hop, so that a redirect to another host takes none
    along. Errors name `scheme`'s way of giving credentials.
    """

    def __init__(self, trusted: Sequence[Prefix], credentials: Credentials, scheme: str) -> None:
        self._trusted = tuple(trusted)
        self._credentials = credentials
        self._scheme = scheme
        # Two pools, so that no connection made for a trusted address serves any other.
        self._public = _session(_public_socket)
        self._inside = _session(_any_socket)

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer at the end of the redirects, body not read yet; the status is not judged.

        Raises `BadSource` for a forbidden hop, `Interrupted` when a server cannot be reached.
        """
        at = hop(url, self._trusted)
        for _ in range(MOST_REDIRECTS + 1):
            response = await self._ask(at, headers)
            try:
                if response.status not in _REDIRECTS:
                    yield response
                    return
                at = self._next(at, response)
            finally:
                response.close()
        raise FetchFailed(f"'{shown_url(url)}' redirects more than {MOST_REDIRECTS} times")

    async def json(self, url: str) -> tuple[Any, aiohttp.ClientResponse]:
        """A JSON answer and the response it came in; raises `FetchFailed` for anything else."""
        async with self.get(url, {}) as response:
            if response.status != 200:
                raise self.refusal(url, response)
            body = bytearray()
            async for chunk in chunks(response):
                body += chunk
                if len(body) > LARGEST_JSON_BYTES:
                    raise FetchFailed(
                        f"'{shown_url(url)}' lists more than {LARGEST_JSON_BYTES} bytes"
                    )
        try:
            return orjson.loads(body), response
        except orjson.JSONDecodeError as error:
            raise FetchFailed(f"'{shown_url(url)}' did not answer with JSON: {error}") from error

    def refusal(self, url: str, response: aiohttp.ClientResponse) -> FetchFailed:
        """What an answer other than the wanted one means for who asked."""
        what = f"'{shown_url(url)}' answers {response.status} {(response.reason or '')[:100]}"
        if response.status in _PASSING:
            return Interrupted(what, _pause_s(response))
        if response.status in (401, 403):
            return FetchFailed(f"{what}; if it needs credentials, {CREDENTIALS[self._scheme]}")
        return FetchFailed(what)

    async def close(self) -> None:
        await self._public.close()
        await self._inside.close()

    async def _ask(self, at: Hop, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        session = self._inside if at.trusted else self._public
        sent = {"Accept-Encoding": "identity", **headers, **self._credentials(at)}
        with interrupting(at.url):
            return await session.get(URL(at.url, encoded=True), headers=sent, allow_redirects=False)

    def _next(self, at: Hop, response: aiohttp.ClientResponse) -> Hop:
        location = response.headers.get("Location", "")
        if not location:
            raise FetchFailed(f"'{shown_url(at.url)}' redirects without saying where")
        return redirected(at, location, self._trusted)


async def chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """The body as it comes; raises `Interrupted` when it is cut short of its length."""
    with interrupting(str(response.url)):
        while chunk := await response.content.readany():
            yield chunk


@contextmanager
def interrupting(url: str) -> Iterator[None]:
    """Turns what the network does to a connection into `Interrupted`, or `BadSource` if private."""
    try:
        yield
    except aiohttp.InvalidURL as error:
        raise BadSource(f"'{shown_url(url)}' is no URL: {error}") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise FetchFailed(f"'{shown_url(url)}' has no valid certificate: {error}") from error
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
            error.os_error, _PrivateAddress
        ):
            raise private(url, error.os_error.why) from error
        reason = str(error)[:300] or type(error).__name__
        raise Interrupted(f"the connection to '{shown_url(url)}' failed: {reason}") from error


class _PrivateAddress(OSError):
    """A host's address is not public. Its text is always the same: when every address of a host
    fails alike, the connector raises the first error instead of one made of all texts."""

    def __init__(self, why: str) -> None:
        super().__init__("not a public address")
        self.why = why


def _public_socket(address: Any) -> socket.socket:
    """Called with the address that is about to be connected to, after any resolving: what a name
    resolved to a moment earlier does not matter."""
    if why := why_not_public(str(address[4][0])):
        raise _PrivateAddress(why)
    return _any_socket(address)


def _any_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    return made


def _session(socket_factory: Callable[[Any], socket.socket]) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=socket_factory, limit=4),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
        headers={"User-Agent": "modelyard"},
    )


def _pause_s(response: aiohttp.ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), LONGEST_PAUSE_S) if text.isdecimal() else 0.0
