"""Git LFS over HTTP: batches, transfers, verification, locks; and pointers as they lie in git.

`@upload@`, `@download@` and `@verify@` in an input stand for the token of a link that the server
gave; an input that begins with "version" is read as a pointer.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from benchmarks.fuzz.http1 import check_answer, join, request, split
from benchmarks.fuzz.servers import InProcess, tell
from benchmarks.fuzz.target import Run, Target, Wrong
from benchmarks.fuzz.targets.git import repository
from repository.lfs import pointer
from repository.lfs.errors import BadPointer

CONTENT = b"weights of a model"
OID = hashlib.sha256(CONTENT).hexdigest()
FRESH = hashlib.sha256(b"other").hexdigest()
RENEW_EVERY = 500
PATIENCE_S = 0.02
TRIES = 5
"""To find the object away: an upload that was left may still be ending."""
_ROOT = "/git/fuzz.git/info/lfs"
_TYPE = {
    "Content-Type": "application/vnd.git-lfs+json",
    "Accept": "application/vnd.git-lfs+json",
    "Connection": "close",
}
_MARK = re.compile(rb"@(upload|download|verify)@")


@contextmanager
def opened() -> Iterator[Run]:
    with repository() as (server, path):
        tokens = _tokens(server, path)
        count = 0

        def run(data: bytes) -> None:
            nonlocal count, tokens
            count += 1
            if data.startswith(b"version"):
                _read(data)
                return
            if count % RENEW_EVERY == 0:
                tokens = _tokens(server, path)
            told = _MARK.sub(lambda found: tokens[found[1]], data)
            check_answer(server.run(tell(path, told, PATIENCE_S)))

        yield run


def _read(data: bytes) -> None:
    try:
        found = pointer.parse(data)
    except BadPointer:
        return
    if found is not None and pointer.parse(pointer.write(found)) != found:
        raise Wrong("a pointer is not read as it was written")


def _tokens(server: InProcess, path: Path) -> dict[bytes, bytes]:
    """Fresh ones for one object that is there and one that is not. Raises Wrong."""
    for _ in range(TRIES):
        for uploaded in server.folder.rglob(FRESH):
            uploaded.unlink()
        if up := _links(server, path, "upload", FRESH, 5):
            break
    else:
        raise Wrong("an upload gets no link")
    if not _links(server, path, "download", OID, len(CONTENT)):
        link = _links(server, path, "upload", OID, len(CONTENT))[b"upload"].decode()
        header = {"Authorization": link, "Connection": "close"}
        server.run(tell(path, request("PUT", f"{_ROOT}/objects/{OID}", CONTENT, header), 60.0))
    return {**up, **_links(server, path, "download", OID, len(CONTENT))}


def _links(
    server: InProcess, path: Path, operation: str, oid: str, size: int
) -> dict[bytes, bytes]:
    """The Authorization of each action that the server offers."""
    answer = server.run(tell(path, _batch(operation, oid, size), 60.0))
    body = orjson.loads(answer.partition(b"\r\n\r\n")[2])
    actions = body["objects"][0].get("actions", {})
    return {
        name.encode(): action["header"]["Authorization"].encode()
        for name, action in actions.items()
    }


def _batch(operation: str, oid: str, size: int) -> bytes:
    body = {
        "operation": operation,
        "transfers": ["basic"],
        "ref": {"name": "refs/heads/main"},
        "objects": [{"oid": oid, "size": size}],
        "hash_algo": "sha256",
    }
    return request("POST", f"{_ROOT}/objects/batch", orjson.dumps(body), _TYPE)


def seeds() -> Sequence[bytes]:
    def moved(method: str, mark: str, oid: str, body: bytes = b"", **more: str) -> bytes:
        header = {"Authorization": mark, "Connection": "close", **more}
        return request(method, f"{_ROOT}/objects/{oid}", body, header)

    verify = orjson.dumps({"oid": FRESH, "size": 5})
    return (
        _batch("upload", FRESH, 5),
        _batch("download", OID, len(CONTENT)),
        moved("PUT", "@upload@", FRESH, b"other"),
        moved("PUT", "@upload@", FRESH, b"wrong"),
        moved("GET", "@download@", OID),
        moved("GET", "@download@", OID, Range="bytes=2-5"),
        moved("POST", "@verify@", f"{FRESH}/verify", verify),
        request("POST", f"{_ROOT}/locks/verify", b"{}", _TYPE),
        request("GET", f"{_ROOT}/locks", b"", _TYPE),
        pointer.write(pointer.Pointer(OID, 5)),
        b"version https://git-lfs.github.com/spec/v1\next-0-a sha256:" + OID.encode()
        + b"\noid sha256:" + OID.encode() + b"\nsize 12\n",
    )  # fmt: skip


TARGET = Target(
    "lfs",
    (
        "repository.lfs",
        "control.git.lfs",
        "control.git.lfs_transfers",
        "control.git.ranges",
    ),
    opened,
    seeds,
    split=split,
    join=join,
)  # fmt: skip
