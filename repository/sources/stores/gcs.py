"""The objects below a prefix of a Google Cloud Storage bucket.

gcsfs brings the endpoint (STORAGE_EMULATOR_HOST included) and the credentials. The bytes come
through our own reader, because gcsfs keeps a whole range in memory and cannot go on with one.
"""

import asyncio
import base64
import binascii
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import gcsfs.core

from repository.sources.errors import FetchFailed, TooLarge
from repository.sources.limits import FetchLimits
from repository.sources.stores.ranged import open_ranged
from repository.sources.stores.store import Checksum, OpenTransfer, RemoteFile
from repository.sources.stores.web import FetchClient
from repository.sources.urls.prefixes import prefix
from repository.sources.urls.url import BucketUrl, Hop, hop

_FIELDS = "nextPageToken,items(name,size,generation)"


class GcsStore:
    """The `Store` of a gs:// `BucketUrl`."""

    def __init__(self, source: BucketUrl, limits: FetchLimits) -> None:
        self._source = source
        self._max_files = limits.max_files
        self._headers: dict[str, str] = {}
        self._files: Any = None
        self._web: FetchClient | None = None

    async def listing(self) -> list[RemoteFile]:
        web = await self._connected()
        found: list[RemoteFile] = []
        page = ""
        while True:
            answer, _ = await web.json(self._page_url(page))
            for item in answer.get("items", ()):
                if not item["name"].endswith("/"):
                    found.append(self._remote(item))
            if len(found) > self._max_files:
                raise TooLarge(f"'{self._source.text}' has more than {self._max_files} objects")
            page = answer.get("nextPageToken", "")
            if not page:
                return found

    @asynccontextmanager
    async def open(
        self, remote: RemoteFile, offset: int, validator: str
    ) -> AsyncIterator[OpenTransfer]:
        web = await self._connected()
        url = self._files.url(f"{self._source.bucket}/{remote.key}")
        async with open_ranged(web, url, offset, validator, _checksum) as opened:
            yield opened

    async def close(self) -> None:
        if self._web is not None:
            await self._web.close()

    async def _connected(self) -> FetchClient:
        """Connections with credentials that are valid now; a token lasts an hour."""
        if self._web is None:
            # Looking for credentials may ask the metadata server, and blocks.
            self._files = await asyncio.to_thread(_file_system, self._source.text)
            endpoint = replace(prefix(self._files.base), parts=())
            trusted = (*self._source.allowed, endpoint)
            origin = hop(self._files.base, trusted).origin
            self._web = FetchClient(trusted, lambda at: self._token(at, origin), "gs")
        await asyncio.to_thread(_apply, self._files, self._headers, self._source.text)
        return self._web

    def _token(self, at: Hop, origin: object) -> Mapping[str, str]:
        return self._headers if at.origin == origin else {}

    def _page_url(self, page: str) -> str:
        query = {"prefix": self._source.key_prefix, "fields": _FIELDS, "maxResults": "1000"}
        if page:
            query["pageToken"] = page
        bucket = quote(self._source.bucket, safe="")
        return f"{self._files.base}b/{bucket}/o?{urlencode(query)}"

    def _remote(self, item: Mapping[str, Any]) -> RemoteFile:
        local = str(item["name"]).removeprefix(self._source.key_prefix)
        return RemoteFile(local, str(item["name"]), int(item["size"]), str(item["generation"]))


def _file_system(text: str) -> Any:
    # An emulator wants no credentials, and shall not see those of a real account.
    token = "anon" if os.environ.get("STORAGE_EMULATOR_HOST") else None
    try:
        return gcsfs.core.GCSFileSystem(
            asynchronous=True, skip_instance_cache=True, use_listings_cache=False, token=token
        )
    except Exception as error:
        # What google-auth raises has no common base.
        raise FetchFailed(f"'{text}': no Google credentials: {error}") from error


def _apply(files: Any, headers: dict[str, str], text: str) -> None:
    try:
        files.credentials.apply(headers)
    except Exception as error:
        raise FetchFailed(f"'{text}': Google credentials cannot be renewed: {error}") from error


def _checksum(headers: Mapping[str, str]) -> Checksum | None:
    """What x-goog-hash says; objects that were composed have no md5, only a crc32c."""
    given = headers.get("x-goog-hash", "")
    hashes = dict(part.strip().split("=", 1) for part in given.split(",") if "=" in part)
    # A stored encoding means that the hash may be of other bytes than those sent.
    if headers.get("x-goog-stored-content-encoding", "identity") != "identity":
        return None
    for name in ("md5", "crc32c"):
        if name in hashes:
            try:
                return Checksum(name, base64.b64decode(hashes[name], validate=True).hex())
            except binascii.Error as error:
                raise FetchFailed(f"the store's {name} is not base64: {error}") from error
    return None
