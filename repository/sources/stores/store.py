"""The seam between a transfer and where the bytes come from, and the choice of a store."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from repository.install_lines import install_line
from repository.sources.errors import FetchFailed
from repository.sources.limits import FetchLimits
from repository.sources.urls.url import HubFolder, Source, WebFile


@dataclass(frozen=True, slots=True)
class Checksum:
    """A digest in hex that the store gives; `algorithm` is hashlib's name, "git" or "crc32c"."""

    algorithm: str
    hexdigest: str


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file to fetch. `path` is where it goes below the staging folder, `key` the store's name.

    `size` in bytes and `version` (ETag, generation, object id) are as listed; None and "" when
    only the transfer will tell.
    """

    path: str
    key: str
    size: int | None = None
    version: str = ""
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class OpenTransfer:
    """A running transfer of one file, from byte `start` on: what was asked for, or else 0.

    `size` is the whole file's; None if the store ends it without having told. `validator` is what
    a later `open` must give to go on with these very bytes, "" if that is impossible.
    """

    start: int
    size: int | None
    validator: str
    chunks: AsyncGenerator[bytes, None]
    checksum: Checksum | None = None


class SourceStore(Protocol):
    """Where the files of one source lie. Not for several tasks at once."""

    async def listing(self) -> list[RemoteFile]:
        """Every file; raises `FetchFailed`, or `TooLarge` beyond the limit of files."""

    def open(
        self, remote: RemoteFile, offset: int, validator: str
    ) -> AbstractAsyncContextManager[OpenTransfer]:
        """Begin a transfer at `offset`, or at 0 if the file is no longer the one of `validator`.

        Entering, and `chunks`, may wait as long as they like: the caller keeps the time. Both
        raise `Interrupted` where another attempt makes sense, else `FetchFailed` or `BadSource`.
        """

    async def close(self) -> None:
        """Give connections back; no transfer may be open."""


_PLACES = {
    "s3": ("repository.sources.stores.s3", "S3Store"),
    "gs": ("repository.sources.stores.gcs", "GcsStore"),
    "hf": ("repository.sources.stores.hub", "HubStore"),
    "http": ("repository.sources.stores.web_store", "WebStore"),
}


async def open_store(source: Source, limits: FetchLimits) -> SourceStore:
    """The store of a source; raises `FetchFailed` if the package for its scheme is missing."""
    module, name = _PLACES[_kind(source)]
    try:
        # Optional, so imported when needed; slow (aiohttp 0.2 s), so not on the loop.
        place = await asyncio.to_thread(import_module, module)
    except ModuleNotFoundError as error:
        remedy = f"install it with: {install_line('sources')}"
        raise FetchFailed(f"'{source.text}' needs the package '{error.name}'; {remedy}") from error
    return cast(SourceStore, getattr(place, name)(source, limits))


def _kind(source: Source) -> str:
    if isinstance(source, WebFile):
        return "http"
    return "hf" if isinstance(source, HubFolder) else source.scheme
