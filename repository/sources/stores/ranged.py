"""Opens a file of a web server where an earlier transfer of it stopped, if it is still the same."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from repository.sources.errors import FetchFailed
from repository.sources.stores.store import Checksum, OpenTransfer
from repository.sources.stores.web import FetchClient, chunks
from repository.sources.urls.prefixes import shown_url

ChecksumOf = Callable[[Mapping[str, str]], Checksum | None]

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@asynccontextmanager
async def open_ranged(
    web: FetchClient, url: str, offset: int, validator: str, checksum_of: ChecksumOf
) -> AsyncIterator[OpenTransfer]:
    """The file from `offset` on if `validator` still holds, else from 0.

    Raises `FetchFailed` when the server refuses, `Interrupted` when it cannot just now.
    """
    if offset and validator:
        headers = {"Range": f"bytes={offset}-", "If-Range": validator}
        async with web.get(url, headers) as response:
            if response.status == 200 or _goes_on(response, offset, validator):
                yield _opened(url, response, checksum_of)
                return
            if response.status not in (206, 412, 416):
                raise web.refusal(url, response)
    async with web.get(url, {}) as response:
        if response.status != 200:
            raise web.refusal(url, response)
        yield _opened(url, response, checksum_of)


@dataclass(frozen=True, slots=True)
class _Extent:
    start: int
    size: int | None


def _opened(url: str, response: aiohttp.ClientResponse, checksum_of: ChecksumOf) -> OpenTransfer:
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise FetchFailed(f"'{shown_url(url)}' comes as '{coding}' although it was not asked to")
    extent = _extent(response)
    chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    if extent.size is None and not chunked:
        remedy = "it must send Content-Length or use chunked encoding"
        raise FetchFailed(f"'{shown_url(url)}' does not tell where it ends; {remedy}")
    checksum = checksum_of(response.headers)
    return OpenTransfer(extent.start, extent.size, _validator(response), chunks(response), checksum)


def _goes_on(response: aiohttp.ClientResponse, offset: int, validator: str) -> bool:
    """Whether this is the rest of the same file; some servers send a range and ignore If-Range."""
    if response.status != 206 or _extent(response).start != offset:
        return False
    return _validator(response) in ("", validator)


def _extent(response: aiohttp.ClientResponse) -> _Extent:
    length = response.content_length
    if response.status != 206:
        return _Extent(0, length)
    found = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if found is None:
        return _Extent(-1, None)
    start, end, size = found.groups()
    if size == "*" and length is None:
        return _Extent(-1, None)
    # A range that stops early is no rest of a file; reading it as one would end in a short file.
    total = int(size) if size != "*" else int(start) + (length or 0)
    return _Extent(int(start) if int(end) + 1 == total else -1, total)


def _validator(response: aiohttp.ClientResponse) -> str:
    """What If-Range accepts: a strong ETag, else the date of the last change, else nothing."""
    etag = response.headers.get("ETag", "")
    if etag.startswith('"'):
        return etag
    return response.headers.get("Last-Modified", "")
