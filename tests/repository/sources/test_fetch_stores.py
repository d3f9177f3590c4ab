"""Folders from S3 (moto's server), Google Cloud Storage and a hub (small servers of ours)."""

import asyncio
import base64
import hashlib
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import google_crc32c
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from repository.sources.errors import FetchFailed, SourceError, TooLarge
from repository.sources.fetch import FetchResult, fetch
from repository.sources.limits import FetchLimits
from repository.sources.url import parse
from support.sources import LIMITS, MIB, Answer, Fault, File, Request, Seen, Site, redirect, site

pytestmark = pytest.mark.anyio
FILES = {
    "config.pbtxt": b"name: 'm'",
    "1/model.onnx": os.urandom(2 * MIB + 5),
    "1/labels of it.txt": b"",
}
ONE_TRY = replace(LIMITS, attempts=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "staging"


async def fetched(url: str, into: Path, limits: FetchLimits = LIMITS) -> FetchResult:
    return await fetch(parse(url), into, limits, Seen())


async def refusal(url: str, into: Path, limits: FetchLimits = ONE_TRY) -> str:
    with pytest.raises(SourceError) as caught:
        await fetched(url, into, limits)
    return str(caught.value)


def content(into: Path) -> dict[str, bytes]:
    found = (path for path in into.rglob("*") if path.is_file())
    return {str(path.relative_to(into)): path.read_bytes() for path in found}


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


# --- Google Cloud Storage -----------------------------------------------------------------------


class Gcs:
    """The JSON API's list, two objects a page, and its download."""

    def __init__(self, web: Site) -> None:
        self._web = web
        self._objects: dict[str, File] = {}
        web.pages["/storage/v1/b/bucket/o"] = self._list

    def put(self, name: str, body: bytes, composed: bool = False) -> File:
        crc = google_crc32c.Checksum(body).digest()
        hashes = [f"crc32c={base64.b64encode(crc).decode()}"]
        if not composed:
            hashes.append(f"md5={base64.b64encode(hashlib.md5(body).digest()).decode()}")
        headers = {"ETag": f'"{crc.hex()}"', "X-Goog-Hash": ",".join(hashes)}
        made = self._objects[name] = File(body, headers)
        self._web.pages[f"/download/storage/v1/b/bucket/o/{quote(name, safe='')}"] = made
        return made

    def _list(self, request: Request) -> Answer:
        asked = parse_qs(request.query)
        names = sorted(name for name in self._objects if name.startswith(asked["prefix"][0]))
        first = int(asked.get("pageToken", ["0"])[0])
        items = [
            {"name": name, "size": str(len(self._objects[name].body)), "generation": "7"}
            for name in names[first : first + 2]
        ]
        page: dict[str, object] = {"items": items}
        if first + 2 < len(names):
            page["nextPageToken"] = str(first + 2)
        return json_answer(page)


def json_answer(value: object, **headers: str) -> Answer:
    body = json.dumps(value).encode()
    return Answer(200, {**headers, "Content-Length": str(len(body))}, body)


@pytest.fixture
async def gcs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gcs]:
    async with site() as web:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", web.url)
        yield Gcs(web)


async def test_all_objects_of_a_google_bucket_arrive(gcs: Gcs, into: Path) -> None:
    for name, body in FILES.items():
        gcs.put(f"models/m/{name}", body)
    gcs.put("models/m/", b"")
    gcs.put("models/m2/x", b"of another model")
    await fetched("gs://bucket/models/m", into)
    assert content(into) == FILES


@pytest.mark.parametrize("composed", [True, False])
async def test_an_object_damaged_on_the_way_is_fetched_again(
    gcs: Gcs, into: Path, composed: bool
) -> None:
    file = gcs.put("m/m.onnx", os.urandom(1000), composed)
    file.faults = deque([Fault(damaged=True), Fault(cut=500)])
    await fetched("gs://bucket/m", into)
    assert content(into) == {"m.onnx": file.body}


async def test_an_object_that_stays_damaged_is_refused(gcs: Gcs, into: Path) -> None:
    file = gcs.put("m/m.onnx", b"honest", composed=True)
    file.body = b"forged"
    assert "its crc32c is not the" in await refusal("gs://bucket/m", into)


# --- Hugging Face -------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"
API = "/api/models/owner/name"


class Hub:
    """The few endpoints of a hub; files of more than a thousand bytes are on another host."""

    def __init__(self, web: Site, storage: Site) -> None:
        self.web, self.storage = web, storage
        self._entries: list[dict[str, object]] = [{"type": "directory", "path": "onnx"}]
        web.pages[f"{API}/revision/main"] = lambda request: json_answer({"sha": COMMIT})
        web.pages[f"{API}/tree/{COMMIT}"] = self._tree

    def put(self, path: str, body: bytes) -> File:
        made = File(body)
        git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        entry: dict[str, object] = {"type": "file", "path": path, "size": len(body), "oid": git}
        place = f"/owner/name/resolve/{COMMIT}/{quote(path)}"
        self.web.pages[place] = made
        if len(body) > 1000:
            oid = hashlib.sha256(body).hexdigest()
            entry |= {"lfs": {"oid": oid, "size": len(body)}}
            self.storage.pages[f"/lfs/{oid}"] = made
            self.web.pages[place] = redirect(f"{self.storage.url}/lfs/{oid}?Signature=abc")
        self._entries.append(entry)
        return made

    def _tree(self, request: Request) -> Answer:
        first = int(parse_qs(request.query).get("cursor", ["0"])[0])
        more = f'<{self.web.url}{API}/tree/{COMMIT}?cursor={first + 2}>; rel="next"'
        headers = {"Link": more} if first + 2 < len(self._entries) else {}
        return json_answer(self._entries[first : first + 2], **headers)


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    async with site() as web, site() as storage:
        monkeypatch.setenv("HF_ENDPOINT", web.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield Hub(web, storage)


async def from_hub(hub: Hub, into: Path, limits: FetchLimits = LIMITS) -> FetchResult:
    allowed = ["hf://owner/name", hub.storage.url]
    return await fetch(parse("hf://owner/name", allowed), into, limits, Seen())


async def test_a_checkpoint_arrives_from_a_hub(hub: Hub, into: Path) -> None:
    files = {"config.json": b"{}", "model.safetensors": os.urandom(5000), "a b.txt": b"x"}
    for name, body in files.items():
        hub.put(name, body)
    hub.put(".gitattributes", b"left out")
    await from_hub(hub, into)
    assert content(into) == files


async def test_the_token_is_shown_to_the_hub_and_not_to_its_storage(hub: Hub, into: Path) -> None:
    hub.put("model.safetensors", os.urandom(5000))
    await from_hub(hub, into)
    tokens = {request.headers.get("authorization") for request in hub.web.requests}
    assert tokens == {"Bearer hf_secret"}
    assert "authorization" not in hub.storage.requests[0].headers


async def test_a_hub_cannot_redirect_to_a_private_address(hub: Hub, into: Path) -> None:
    hub.put("model.safetensors", os.urandom(5000))
    assert "is loopback" in await refusal("hf://owner/name", into)
    assert not hub.storage.requests


@pytest.mark.parametrize("size", [900, 5000])
async def test_a_file_of_a_hub_that_is_not_the_listed_one_is_refused(
    hub: Hub, into: Path, size: int
) -> None:
    hub.put("m.onnx", os.urandom(size)).body = os.urandom(size)
    with pytest.raises(FetchFailed, match=r"is not the .* that the store gives"):
        await from_hub(hub, into, ONE_TRY)


async def test_a_cut_file_of_a_hub_goes_on_where_it_stopped(hub: Hub, into: Path) -> None:
    file = hub.put("model.safetensors", os.urandom(2 * MIB))
    file.faults = deque([Fault(cut=MIB)])
    await from_hub(hub, into)
    assert content(into) == {"model.safetensors": file.body}
    assert "range" in hub.storage.requests[1].headers


async def test_a_second_call_fetches_only_what_the_first_did_not(hub: Hub, into: Path) -> None:
    first, second = hub.put("a.onnx", os.urandom(2000)), hub.put("b.onnx", os.urandom(3000))
    second.faults = deque([Fault(status=404)])
    with pytest.raises(FetchFailed, match=r"'b.onnx' at byte 0"):
        await from_hub(hub, into)
    await from_hub(hub, into)
    assert content(into) == {"a.onnx": first.body, "b.onnx": second.body}
    sizes = [request.path for request in hub.storage.requests]
    assert len(sizes) == 3


async def test_a_part_that_is_whole_is_proved_by_its_last_byte(hub: Hub, into: Path) -> None:
    file = hub.put("model.safetensors", os.urandom(5000))
    file.faults = deque([Fault(stall=4000)])
    with pytest.raises(FetchFailed):
        await from_hub(hub, into, replace(ONE_TRY, stall_s=2.0))
    (into / "model.safetensors.part").write_bytes(file.body)
    await from_hub(hub, into)
    assert content(into) == {"model.safetensors": file.body}
    assert hub.storage.requests[-1].headers["range"] == "bytes=4999-"


async def test_more_files_than_the_limit_are_refused(hub: Hub, into: Path) -> None:
    for number in range(3):
        hub.put(f"{number}.onnx", b"x")
    with pytest.raises(TooLarge, match="more than 2 files"):
        await from_hub(hub, into, replace(LIMITS, max_files=2))


async def test_a_revision_that_is_not_there_is_named(hub: Hub, into: Path) -> None:
    message = await refusal("hf://owner/name@v9", into)
    assert "owner/name/revision/v9' answers 404" in message


async def test_a_hub_that_never_answers_is_given_up(
    hub: Hub, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.web.pages[f"{API}/revision/main"] = lambda request: replace(
        json_answer({"sha": COMMIT}), stall=3
    )
    message = await refusal("hf://owner/name", into, replace(ONE_TRY, stall_s=0.1))
    assert "was not listed within 0.4 s" in message
