"""Git LFS as no client speaks it: other bytes, other sizes, others' links, and half a body."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from control.http_errors import trouble_of
from control.repository_settings import PushBudgets, RepositorySettings
from repository.errors import DiskFull
from repository.lfs.batch import MEDIA_TYPE
from repository.lfs.tokens import LIFETIME_S, LfsTokenScope, sign
from support.admin import Answered
from support.git_server import SECRET, Served, eventually, git_server

CONTENT = bytes(range(256)) * 40
OID, SIZE = sha256(CONTENT).hexdigest(), len(CONTENT)
OBJECT = f"info/lfs/objects/{OID}"


@pytest.fixture(scope="module")
def server(migrated_sqlite: Path) -> Iterator[Served]:
    with git_server(migrated_sqlite) as running:
        running.user("ada", "operator")
        running.user("vic", "viewer")
        yield running


@pytest.fixture
def hasty(migrated_sqlite: Path) -> Iterator[Served]:
    """Waits two seconds for the next byte, and no longer; `zoo` is empty."""
    with git_server(migrated_sqlite, stall_s=2.0) as running:
        running.create("zoo")
        yield running


@pytest.fixture
def name(server: Served, request: pytest.FixtureRequest) -> str:
    return server.create(f"r{abs(hash(request.node.name)):x}")


def link(operation: Any, name: str, oid: str = OID, size: int = SIZE, age_s: float = 0.0) -> dict:
    token = sign(SECRET, LfsTokenScope(operation, name, oid, size), time.time() - age_s)
    return {"Authorization": f"Bearer lfs-{token}"}


def put(server: Served, name: str, content: bytes = CONTENT, size: int = SIZE) -> Answered:
    headers = link("upload", name, size=size)
    return server.ask("PUT", f"{name}.git/{OBJECT}", body=content, headers=headers)


def get(server: Served, name: str, **headers: str) -> Answered:
    said = {key.replace("_", "-"): value for key, value in headers.items()}
    return server.ask("GET", f"{name}.git/{OBJECT}", headers=link("download", name) | said)


def batch(server: Served, name: str, token: str, operation: str, **changes: Any) -> Answered:
    body = {"operation": operation, "objects": [{"oid": OID, "size": SIZE}]} | changes
    headers = {"Content-Type": f"{MEDIA_TYPE}; charset=utf-8", "Accept": MEDIA_TYPE}
    path = f"{name}.git/info/lfs/objects/batch"
    return server.ask("POST", path, token, json.dumps(body).encode(), headers)


def incoming(server: Served) -> list[Path]:
    return list((server.store / "lfs/incoming").glob("*"))


def test_a_batch_of_nobody_is_challenged(server: Served, name: str) -> None:
    found = batch(server, name, "", "download")
    assert found.status == 401
    assert found.headers["lfs-authenticate"].startswith('Basic realm="modelyard"')
    assert found.headers["content-type"] == MEDIA_TYPE
    assert "not authenticated:" in found.json["message"]


def test_a_batch_gives_links_that_hold_no_token_of_the_caller(server: Served, name: str) -> None:
    token = server.token("ada")
    found = batch(server, name, token, "upload")
    (item,) = found.json["objects"]
    upload, verify = item["actions"]["upload"], item["actions"]["verify"]
    assert found.headers["content-type"] == MEDIA_TYPE
    assert upload["href"] == f"{server.url(name)}/{OBJECT}"
    assert verify["href"] == f"{server.url(name)}/{OBJECT}/verify"
    assert upload["header"]["Authorization"].startswith("Bearer lfs-")
    assert upload["expires_in"] == LIFETIME_S
    assert token.encode() not in found.body


def test_links_lead_to_the_public_url_where_there_is_one(migrated_sqlite: Path) -> None:
    public = "https://models.example/yard/"
    with git_server(migrated_sqlite, public_url=public) as server:
        server.user("ada", "operator")
        found = batch(server, server.create("zoo"), server.token("ada"), "upload")
    href = found.json["objects"][0]["actions"]["upload"]["href"]
    assert href == f"https://models.example/yard/git/zoo.git/{OBJECT}"


def test_a_viewer_gets_links_to_fetch_alone(server: Served, name: str) -> None:
    assert put(server, name).status == 200
    token = server.token("vic", "read")
    assert "download" in batch(server, name, token, "download").json["objects"][0]["actions"]
    assert batch(server, name, token, "upload").status == 403


def test_one_size_for_another_is_a_conflict(server: Served, name: str) -> None:
    put(server, name)
    said = [{"oid": OID, "size": SIZE + 1}]
    found = batch(server, name, server.token("ada"), "download", objects=said)
    assert found.json["objects"][0]["error"]["code"] == 409


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"operation": "delete"}, 422),
        ({"objects": "all"}, 422),
        ({"transfers": ["tus"]}, 422),
        ({"hash_algo": "md5"}, 409),
        ({"objects": [{"oid": OID, "size": 1}] * 1001}, 413),
        ({"padding": "x" * 2**20}, 413),
    ],
)
def test_a_batch_that_is_none_is_refused_with_a_message(
    server: Served, name: str, changes: dict[str, Any], status: int
) -> None:
    found = batch(server, name, server.token("ada"), **{"operation": "upload"} | changes)
    assert found.status == status
    assert found.json["message"]


def test_a_batch_of_another_content_type_is_refused(server: Served, name: str) -> None:
    path = f"{name}.git/info/lfs/objects/batch"
    kind = {"Content-Type": "text/plain"}
    assert server.ask("POST", path, server.token("ada"), b"{}", kind).status == 415


def test_an_object_comes_in_is_verified_and_goes_out(server: Served, name: str) -> None:
    assert put(server, name).status == 200
    said = json.dumps({"oid": OID, "size": SIZE}).encode()
    path = f"{name}.git/{OBJECT}/verify"
    assert server.ask("POST", path, body=said, headers=link("verify", name)).status == 200
    found = get(server, name)
    assert (found.status, found.body) == (200, CONTENT)
    assert found.headers["accept-ranges"] == "bytes"


def test_an_object_that_has_not_arrived_is_not_verified(server: Served, name: str) -> None:
    said = json.dumps({"oid": OID, "size": SIZE}).encode()
    path = f"{name}.git/{OBJECT}/verify"
    assert server.ask("POST", path, body=said, headers=link("verify", name)).status == 404


def test_other_bytes_than_the_oid_says_are_refused(server: Served, name: str) -> None:
    found = put(server, name, CONTENT[::-1])
    assert found.status == 400
    assert "was changed on its way" in found.json["message"]
    assert get(server, name).status == 404
    assert not incoming(server)


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x"], ids=["shorter", "longer"])
def test_another_length_than_was_signed_is_refused(
    server: Served, name: str, content: bytes
) -> None:
    assert put(server, name, content).status == 400
    assert not incoming(server)


def test_an_object_above_a_budget_lowered_meanwhile_is_refused(server: Served, name: str) -> None:
    server.change(name, RepositorySettings(budgets=PushBudgets(max_lfs_bytes=SIZE - 1)))
    assert put(server, name).status == 413


def test_the_same_object_may_come_several_times_at_once(server: Served, name: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: put(server, name).status, range(8)))
    assert found == [200] * 8
    assert get(server, name).body == CONTENT
    assert not incoming(server)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer lfs-"},
        {"Authorization": "Bearer lfs-e30.e30"},
        {"Authorization": "Basic eDp4"},
        link("download", "other"),
        link("upload", "other"),
        link("download", "other", oid="0" * 64),
        link("download", "other", age_s=LIFETIME_S + 1),
    ],
)
def test_a_link_that_is_not_for_this_is_refused(
    server: Served, name: str, headers: dict[str, str]
) -> None:
    put(server, name)
    found = server.ask("GET", f"{name}.git/{OBJECT}", headers=headers)
    assert found.status in (401, 403)
    assert found.json["message"]


def test_a_link_does_not_outlive_its_time(server: Served, name: str) -> None:
    put(server, name)
    expired = link("download", name, age_s=LIFETIME_S + 1)
    found = server.ask("GET", f"{name}.git/{OBJECT}", headers=expired)
    assert (found.status, "expired" in found.json["message"]) == (403, True)


def test_a_link_is_no_token_for_anything_else(server: Served, name: str) -> None:
    path = f"{name}.git/info/refs?service=git-upload-pack"
    assert server.ask("GET", path, headers=link("download", name)).status == 401


def test_a_repository_that_was_removed_takes_nothing(server: Served) -> None:
    assert put(server, "gone").status == 404


@pytest.mark.parametrize(
    ("said", "start", "end"),
    [("bytes=100-", 100, SIZE), ("bytes=0-9", 0, 10), (f"bytes={SIZE - 5}-999999", SIZE - 5, SIZE)],
)
def test_a_range_is_sent_alone(server: Served, name: str, said: str, start: int, end: int) -> None:
    put(server, name)
    found = get(server, name, Range=said)
    assert (found.status, found.body) == (206, CONTENT[start:end])
    assert found.headers["content-range"] == f"bytes {start}-{end - 1}/{SIZE}"
    assert found.headers["content-length"] == str(end - start)


def test_a_range_behind_the_end_is_told_the_size(server: Served, name: str) -> None:
    put(server, name)
    found = get(server, name, Range=f"bytes={SIZE}-")
    assert found.status == 416
    assert found.headers["content-range"] == f"bytes */{SIZE}"


def test_a_range_of_something_else_gets_the_whole(server: Served, name: str) -> None:
    put(server, name)
    etag = get(server, name).headers["etag"]
    assert get(server, name, Range="bytes=1-", If_Range=etag).status == 206
    assert get(server, name, Range="bytes=1-", If_Range='"other"').status == 200


def test_an_upload_that_stops_is_ended_and_leaves_nothing(hasty: Served) -> None:
    found = hasty.raw(head_of("zoo") + CONTENT[:10])
    assert found.status == 408
    assert not incoming(hasty)


def test_an_upload_whose_client_goes_leaves_nothing(server: Served, name: str) -> None:
    with server.connected() as connection:
        connection.sendall(head_of(name) + CONTENT[:10])
        assert eventually(lambda: len(incoming(server)) == 1)
    assert eventually(lambda: not incoming(server))


def head_of(name: str) -> bytes:
    said = link("upload", name)["Authorization"]
    lines = (
        f"PUT /git/{name}.git/{OBJECT} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Length: {SIZE}",
        f"Authorization: {said}",
    )
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_reader_who_stops_reading_is_let_go(hasty: Served) -> None:
    large = bytes(64 * 2**20)
    oid = sha256(large).hexdigest()
    path = f"zoo.git/info/lfs/objects/{oid}"
    headers = link("upload", "zoo", oid, len(large))
    assert hasty.ask("PUT", path, body=large, headers=headers).status == 200
    said = link("download", "zoo", oid, len(large))["Authorization"]
    lines = (f"GET /git/{path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: {said}")
    with hasty.connected() as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert connection.recv(16)
        assert eventually(lambda: not open_of(hasty.store))


def open_of(store: Path) -> list[Path]:
    """Files of the store that this process has open."""
    opened = []
    for link_to in Path("/proc/self/fd").iterdir():
        try:
            opened.append(link_to.readlink())
        except OSError:
            continue
    return [path for path in opened if path.is_relative_to(store / "lfs")]


@pytest.mark.parametrize("rest", ["locks", "locks/verify"])
def test_locks_are_not_kept(server: Served, name: str, rest: str) -> None:
    found = server.ask("POST", f"{name}.git/info/lfs/{rest}", server.token("ada"), b"{}")
    assert (found.status, found.json["message"]) == (404, "this server keeps no locks of files")
    assert server.ask("POST", f"{name}.git/info/lfs/{rest}", "", b"{}").status == 401


@pytest.mark.parametrize(
    "rest", ["", "objects", "objects/zz", f"objects/{OID}/x", f"objects/{OID[:-1]}", "../HEAD"]
)
def test_nothing_else_is_served(server: Served, name: str, rest: str) -> None:
    found = server.ask("GET", f"{name}.git/info/lfs/{rest}", headers=link("download", name))
    assert found.status == 404


def test_a_full_disk_has_a_status_of_its_own() -> None:
    assert trouble_of(DiskFull("no room for it"), "1").status == 507


def test_other_repositories_objects_are_not_to_be_had(server: Served, name: str) -> None:
    put(server, name)
    other = server.create(f"{name}-2")
    found = batch(server, other, server.token("ada"), "download")
    assert found.json["objects"][0]["error"]["code"] == 404
    assert get(server, other).status == 404
