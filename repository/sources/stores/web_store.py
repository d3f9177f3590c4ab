"""One file at an http(s) address: an archive or a single artefact."""

import base64
import netrc
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from repository.sources.errors import FetchFailed
from repository.sources.limits import FetchLimits
from repository.sources.stores.ranged import open_ranged
from repository.sources.stores.store import OpenTransfer, RemoteFile
from repository.sources.stores.web import FetchClient
from repository.sources.urls.url import Hop, WebFile


class WebStore:
    """The `Store` of a `WebFile`; its size is known once the transfer runs."""

    def __init__(self, source: WebFile, limits: FetchLimits) -> None:
        self._source = source
        self._web = FetchClient(source.allowed, _from_netrc, "https")

    async def listing(self) -> list[RemoteFile]:
        # HEAD is answered wrongly by too many servers to rely on.
        return [RemoteFile(self._source.name, self._source.url)]

    def open(
        self, remote: RemoteFile, offset: int, validator: str
    ) -> AbstractAsyncContextManager[OpenTransfer]:
        return open_ranged(self._web, remote.key, offset, validator, lambda headers: None)

    async def close(self) -> None:
        await self._web.close()


def _from_netrc(at: Hop) -> Mapping[str, str]:
    """Basic credentials for exactly this host, never in clear text to one that is not trusted."""
    path = os.environ.get("NETRC", "")
    scheme, host, _ = at.origin
    if not path or not (scheme == "https" or at.trusted):
        return {}
    try:
        login = netrc.netrc(path).hosts.get(host)
    except (OSError, netrc.NetrcParseError) as error:
        raise FetchFailed(f"the file that NETRC names cannot be read: {error}") from error
    if login is None:
        return {}
    pair = base64.b64encode(f"{login[0]}:{login[2]}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
