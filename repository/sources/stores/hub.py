"""The files of a repository on a Hugging Face hub, at one commit."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote, urljoin

from repository.sources.errors import FetchFailed, TooLarge
from repository.sources.limits import FetchLimits
from repository.sources.stores.ranged import open_ranged
from repository.sources.stores.store import Checksum, OpenTransfer, RemoteFile
from repository.sources.stores.web import FetchClient
from repository.sources.urls.prefixes import prefix
from repository.sources.urls.url import Hop, HubFolder, hop

ENDPOINT = "https://huggingface.co"
_LEFT_OUT = (".gitattributes", ".gitignore")


class HubStore:
    """The `Store` of a `HubFolder`: HF_ENDPOINT names the hub, HF_TOKEN who asks."""

    def __init__(self, source: HubFolder, limits: FetchLimits) -> None:
        self._source = source
        self._max_files = limits.max_files
        self._endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
        # The operator named the hub, so it may be private; what it redirects to may not.
        trusted = (*source.allowed, prefix(self._endpoint))
        self._origin = hop(self._endpoint, trusted).origin
        self._web = FetchClient(trusted, self._token, "hf")

    async def listing(self) -> list[RemoteFile]:
        """Every file below the folder at the revision's commit of this moment."""
        about, _ = await self._web.json(self._api(f"revision/{quote(self._source.revision, '')}"))
        commit = _text(about, "sha")
        found: list[RemoteFile] = []
        async for entry in self._entries(commit):
            path = _text(entry, "path")
            if entry.get("type") != "file" or path in _LEFT_OUT:
                continue
            if len(found) == self._max_files:
                raise TooLarge(f"'{self._source.text}' has more than {self._max_files} files")
            found.append(self._remote(commit, path, entry))
        return found

    def open(
        self, remote: RemoteFile, offset: int, validator: str
    ) -> AbstractAsyncContextManager[OpenTransfer]:
        return open_ranged(self._web, remote.key, offset, validator, lambda headers: None)

    async def close(self) -> None:
        await self._web.close()

    async def _entries(self, commit: str) -> AsyncIterator[dict[str, Any]]:
        """The tree's entries, page by page; a hub ends each page's header with the next one."""
        folder = quote(self._source.folder.rstrip("/"))
        url = self._api(f"tree/{commit}/{folder}".rstrip("/")) + "?recursive=true"
        while url:
            page, response = await self._web.json(url)
            if not isinstance(page, list):
                raise FetchFailed(f"'{self._source.text}': the hub lists no files")
            for entry in page:
                yield entry
            following = response.links.get("next")
            url = urljoin(url, str(following["url"])) if page and following else ""

    def _remote(self, commit: str, path: str, entry: dict[str, Any]) -> RemoteFile:
        url = f"{self._endpoint}/{self._source.repository}/resolve/{commit}/{quote(path)}"
        lfs = entry.get("lfs")
        holder: dict[str, Any] = lfs if isinstance(lfs, dict) else entry
        oid, size = _text(holder, "oid"), holder.get("size")
        if not isinstance(size, int):
            raise FetchFailed(f"'{self._source.text}': the hub gives no size for '{path}'")
        # Files in git itself are known by their blob's id, those in LFS by their sha256.
        checksum = Checksum("git" if holder is entry else "sha256", oid.removeprefix("sha256:"))
        return RemoteFile(path.removeprefix(self._source.folder), url, size, oid, checksum)

    def _api(self, rest: str) -> str:
        return f"{self._endpoint}/api/models/{self._source.repository}/{rest}"

    def _token(self, at: Hop) -> Mapping[str, str]:
        token = os.environ.get("HF_TOKEN", "")
        return {"Authorization": f"Bearer {token}"} if token and at.origin == self._origin else {}


def _text(holder: Any, name: str) -> str:
    found = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(found, str) or not found:
        raise FetchFailed(f"the hub's answer has no '{name}'; is HF_ENDPOINT a hub?")
    return found
