"""The objects below a prefix of an S3 bucket.

s3fs brings the client: credentials, endpoint and region from the environment or the machine's
role. The bytes are streamed from that client, because s3fs itself keeps a whole range in memory.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import s3fs
from aiobotocore.httpsession import AIOHTTPSession
from aiohttp import ClientError as ConnectionLost
from aiohttp import ClientResponse, ClientSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
)

from repository.sources.errors import BadSource, FetchFailed, Interrupted, TooLarge
from repository.sources.limits import FetchLimits
from repository.sources.stores.store import Checksum, OpenTransfer, RemoteFile
from repository.sources.urls.prefixes import shown_url
from repository.sources.urls.url import CREDENTIALS, BucketUrl

_CHUNK_BYTES = 1 << 18
_AFTER_S = 5.0
_MD5 = re.compile(r'"[0-9a-f]{32}"')
_PASSING = (408, 429, 500, 502, 503, 504)
_CHANGED = (404, 412, 416)
_REGION = "x-amz-bucket-region"


class S3Store:
    """The `Store` of an s3:// `BucketUrl`."""

    def __init__(self, source: BucketUrl, limits: FetchLimits) -> None:
        self._source = source
        self._max_files = limits.max_files
        # Retries and stalls are the transfer's; these only catch what would be left behind.
        config = {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": limits.stall_s + _AFTER_S,
            "read_timeout": limits.stall_s + _AFTER_S,
            "http_session_cls": _S3Connections,
        }
        self._files: Any = s3fs.S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs=config,
        )
        self._client: Any = None

    async def listing(self) -> list[RemoteFile]:
        found: list[RemoteFile] = []
        with _translating(self._source.text):
            pages = (await self._connected()).get_paginator("list_objects_v2")
            arguments = {"Bucket": self._source.bucket, "Prefix": self._source.key_prefix}
            async for page in pages.paginate(**arguments):
                found += (self._remote(item) for item in page.get("Contents", ()))
                found = [remote for remote in found if not remote.key.endswith("/")]
                if len(found) > self._max_files:
                    raise TooLarge(f"'{self._source.text}' has more than {self._max_files} objects")
        return found

    @asynccontextmanager
    async def open(
        self, remote: RemoteFile, offset: int, validator: str
    ) -> AsyncIterator[OpenTransfer]:
        answer = await self._answer(remote.key, offset, validator)
        body = answer["Body"]
        start = offset if "ContentRange" in answer else 0
        size = start + int(answer["ContentLength"])
        etag = str(answer["ETag"])
        try:
            yield OpenTransfer(start, size, etag, self._chunks(body), _checksum(answer, etag))
        finally:
            body.close()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _answer(self, key: str, offset: int, validator: str) -> Mapping[str, Any]:
        """The rest of the object if it is still the same, else all of what it is now."""
        with _translating(f"s3://{self._source.bucket}/{key}"):
            if offset and validator:
                try:
                    return await self._get(key, IfMatch=validator, Range=f"bytes={offset}-")
                except ClientError as error:
                    if _status(error) not in _CHANGED:
                        raise
            return await self._get(key)

    async def _get(self, key: str, **conditions: str) -> Mapping[str, Any]:
        client = await self._connected()
        answer: Mapping[str, Any] = await client.get_object(
            Bucket=self._source.bucket, Key=key, **conditions
        )
        return answer

    async def _chunks(self, body: Any) -> AsyncGenerator[bytes, None]:
        with _translating(self._source.text):
            while chunk := await body.read(_CHUNK_BYTES):
                yield chunk

    async def _connected(self) -> Any:
        if self._client is None:
            self._client = await self._files.set_session()
        return self._client

    def _remote(self, item: Mapping[str, Any]) -> RemoteFile:
        key = str(item["Key"])
        local = key.removeprefix(self._source.key_prefix)
        return RemoteFile(local, key, int(item["Size"]), str(item["ETag"]))


class _S3Connections(AIOHTTPSession):  # type: ignore[misc]
    """The client's connections, which follow no redirect.

    aiohttp follows one to whatever address it names, and the operator named only the endpoint.
    What tells the bucket's region is left to botocore, which asks that region's endpoint.
    """

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        return SimpleNamespace(request=partial(_request_once, session))


async def _request_once(session: ClientSession, method: str, **given: Any) -> ClientResponse:
    response = await session.request(method, **given, allow_redirects=False)
    location = response.headers.get("Location")
    if 300 <= response.status < 400 and location and _REGION not in response.headers:
        response.close()
        raise _RedirectError(location)
    return response


class _RedirectError(Exception):
    """An endpoint names another address."""


@contextmanager
def _translating(text: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise _meaning(text, error) from error
    except NoCredentialsError as error:
        remedy = f"{CREDENTIALS['s3']}; for a public bucket set FSSPEC_S3_ANON=true"
        raise FetchFailed(f"'{text}' needs credentials; {remedy}") from error
    except (HTTPClientError, ConnectionError, ConnectionLost, OSError) as error:
        if isinstance(error, HTTPClientError) and isinstance(
            error.kwargs.get("error"), _RedirectError
        ):
            raise _redirected(text, error.kwargs["error"]) from error
        raise Interrupted(f"the connection for '{text}' failed: {str(error)[:300]}") from error
    except BotoCoreError as error:
        raise FetchFailed(f"'{text}': {error}") from error


def _redirected(text: str, error: _RedirectError) -> BadSource:
    there = shown_url(str(error))
    remedy = "if the bucket is served there, set AWS_ENDPOINT_URL to that server"
    return BadSource(f"'{text}': the endpoint redirects to '{there}', not followed; {remedy}")


def _meaning(text: str, error: ClientError) -> FetchFailed:
    status = _status(error)
    what = f"'{text}' answers {status} {error.response.get('Error', {}).get('Code', '')}"
    if status in _PASSING:
        return Interrupted(what)
    if status in (401, 403):
        return FetchFailed(f"{what}; {CREDENTIALS['s3']} that may list and read it")
    return FetchFailed(what)


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _checksum(answer: Mapping[str, Any], etag: str) -> Checksum | None:
    """The ETag is an md5 unless the object came in parts or is encrypted with a key of its own."""
    sealed = "SSECustomerAlgorithm" in answer
    if sealed or answer.get("ServerSideEncryption", "AES256") != "AES256":
        return None
    return Checksum("md5", etag.strip('"')) if _MD5.fullmatch(etag) else None
