"""Folders from Google Cloud Storage (a small server of ours)."""

import base64
import hashlib
import os
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote

import google_crc32c
import pytest

from support.fetched_folders import FILES, content, fetched, json_answer, refusal
from support.sources import Answer, Fault, File, Request, Site, site

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "staging"


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
