"""Checkpoints from a hub (a small server of ours)."""

import hashlib
import os
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest

from repository.sources.errors import FetchFailed, TooLarge
from repository.sources.fetch import FetchResult, fetch
from repository.sources.limits import FetchLimits
from repository.sources.urls.url import parse
from support.fetched_folders import ONE_TRY, content, json_answer, refusal
from support.sources import LIMITS, MIB, Answer, Fault, File, Request, Seen, Site, redirect, site

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "staging"


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
