"""Folders from S3 (moto's server)."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from repository.sources.errors import TooLarge
from repository.sources.fetch import fetch
from repository.sources.urls.url import parse
from support.fetched_folders import FILES, ONE_TRY, content, fetched, refusal
from support.sources import LIMITS, MIB, Seen, redirect, site

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "staging"


# --- S3 -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    server.stop()


@pytest.fixture
async def s3(moto: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    files = s3fs.S3FileSystem(asynchronous=True, skip_instance_cache=True)
    client = await files.set_session()
    await client.create_bucket(Bucket="bucket")
    yield client
    await client.close()


async def put(client: Any, files: dict[str, bytes], prefix: str) -> None:
    for name, body in files.items():
        await client.put_object(Bucket="bucket", Key=prefix + name, Body=body)


async def test_all_objects_below_a_prefix_arrive(s3: Any, into: Path) -> None:
    await put(s3, {**FILES, "": b""}, "models/m/")
    await put(s3, {"x": b"of another model"}, "models/m2/")
    found = await fetched("s3://bucket/models/m", into)
    assert content(into) == FILES
    assert found.files == {name: len(body) for name, body in FILES.items()}


async def test_an_object_that_came_in_parts_arrives(s3: Any, into: Path) -> None:
    made = await s3.create_multipart_upload(Bucket="bucket", Key="parts/m.onnx")
    place = {"Bucket": "bucket", "Key": "parts/m.onnx", "UploadId": made["UploadId"]}
    bodies = [os.urandom(5 * MIB), b"rest"]
    etags = [
        (await s3.upload_part(**place, PartNumber=number, Body=body))["ETag"]
        for number, body in enumerate(bodies, 1)
    ]
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
    await s3.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    await fetched("s3://bucket/parts", into)
    assert content(into) == {"m.onnx": b"".join(bodies)}


async def test_an_s3_endpoint_cannot_redirect(
    s3: Any, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site() as endpoint, site() as inner:
        endpoint.pages["/bucket"] = redirect(f"{inner.url}/latest/meta-data")
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.url)
        problem = await refusal("s3://bucket/models/m", into)
        there = f"'{inner.url}/latest/meta-data'"
        assert f"'s3://bucket/models/m': the endpoint redirects to {there}, not followed" in problem
        assert len(endpoint.requests) == 1
        assert inner.requests == []


@asynccontextmanager
async def dropping(upstream: str, dropped_after: int, stalls: bool = False) -> AsyncIterator[str]:
    """A proxy before `upstream`; its first answer longer than `dropped_after` is cut there, or
    stalls there until the client goes."""
    left = [1]
    host, port = upstream.removeprefix("http://").split(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            back.write(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            answer = await there.read(-1)
            cut = len(answer) > dropped_after and bool(left)
            writer.write(answer[:dropped_after] if cut else answer)
            await writer.drain()
            if cut:
                left.clear()
                await (reader.read() if stalls else asyncio.sleep(0))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            back.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_a_cut_object_goes_on_with_the_next_call(
    s3: Any, moto: str, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(s3, FILES, "cut/")
    async with dropping(moto, MIB + MIB // 2) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy)
        message = await refusal("s3://bucket/cut", into)
        assert "'1/model.onnx' at byte" in message
        assert (into / "1/model.onnx.part").stat().st_size > MIB // 2
        seen = Seen()
        await fetch(parse("s3://bucket/cut"), into, LIMITS, seen)
    assert content(into) == FILES
    assert any(MIB // 2 < report.bytes_done < 2 * MIB for report in seen)


@pytest.mark.slow
async def test_an_object_that_stalls_is_taken_up_again(
    s3: Any, moto: str, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(s3, FILES, "stall/")
    async with dropping(moto, MIB, stalls=True) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy)
        slow = replace(ONE_TRY, stall_s=4.0)  # four times as long for the listing
        assert "stalled: no byte for 4 s" in await refusal("s3://bucket/stall", into, slow)
        await fetched("s3://bucket/stall", into)
    assert content(into) == FILES


async def test_an_object_that_changed_between_two_calls_is_fetched_anew(
    s3: Any, moto: str, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(s3, {"m.onnx": FILES["1/model.onnx"], "a.txt": b"1"}, "changing/")
    async with dropping(moto, MIB) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy)
        await refusal("s3://bucket/changing", into)
        await put(s3, {"m.onnx": b"new", "a.txt": b"2"}, "changing/")
        await fetched("s3://bucket/changing", into)
    assert content(into) == {"m.onnx": b"new", "a.txt": b"2"}


async def test_an_object_that_is_gone_by_the_next_call_leaves_nothing(s3: Any, into: Path) -> None:
    await put(s3, {"a/x.txt": b"1", "m.onnx": b"2"}, "fewer/")
    with pytest.raises(TooLarge):
        await fetched("s3://bucket/fewer", into, replace(LIMITS, max_files=1))
    await fetched("s3://bucket/fewer", into)
    assert content(into) == {"a/x.txt": b"1", "m.onnx": b"2"}


async def test_a_prefix_without_objects_is_refused(s3: Any, into: Path) -> None:
    assert "holds no file" in await refusal("s3://bucket/nothing", into)


async def test_a_bucket_that_is_not_there_is_named(s3: Any, into: Path) -> None:
    assert "'s3://no-such-bucket/x' answers 404" in await refusal("s3://no-such-bucket/x", into)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (["evil\\..\\x"], "backslash"),
        (["a", "a/b"], "'a' is a file and a folder"),
        (["x.part"], "ends in '.part'"),
        ([".fetch.jsonl"], "needs for itself"),
    ],
)
async def test_a_key_that_cannot_be_a_file_is_refused(
    s3: Any, into: Path, keys: list[str], reason: str
) -> None:
    prefix = f"keys-{hashlib.md5(reason.encode()).hexdigest()}"
    await put(s3, dict.fromkeys(keys, b""), f"{prefix}/")
    assert reason in await refusal(f"s3://bucket/{prefix}", into)


async def test_without_credentials_the_remedy_is_named(
    s3: Any, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    message = await refusal("s3://bucket/x", into)
    assert "AWS_ACCESS_KEY_ID" in message
    assert "FSSPEC_S3_ANON=true" in message
