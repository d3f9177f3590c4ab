"""Load on a yard, and what must hold on its disk and in its rows whatever was killed.

`with inferring(y, "m") as load:` asks the gateway all the time; `load.failures` is to stay empty.
`check_whole(y)` fails when a push ended half-way or something was left behind.
"""

import http.client
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from repository.files.owner import alive
from repository.git import bare
from repository.snapshots import stored
from support.yard import Yard, write_identity

INPUTS = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
).encode()

OVER = {"served", "failed", "refused", "abandoned", "stored", "superseded"}
BROKEN = ("Traceback", "This is a bug")


@dataclass
class Load:
    """What the clients were answered; `failures` are words for whatever was no 200."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)


@contextmanager
def inferring(y: Yard, model: str, clients: int = 1) -> Iterator[Load]:
    """Clients that infer over connections that stay, until the block ends."""
    load, ending = Load(), threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", y.server.http_port, timeout=60)
        while not ending.wait(0.002):
            try:
                connection.request("POST", f"/v2/models/{model}/infer", INPUTS)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                load.failures.append(repr(error))
                connection.close()
                continue
            load.answered += 1
            if answer.status != 200:
                load.failures.append(f"{answer.status}: {text[:200]!r}")
        connection.close()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        ending.set()
        for thread in threads:
            thread.join(60)


def check_load(load: Load) -> None:
    assert load.failures == []
    assert load.answered > 0


# pushes, as somebody makes them who tries again until git has it


def next_version(y: Yard, work: Path, model: str, number: int) -> str:
    """Commit a version that replaces the one before; the commit's id."""
    home = work / "models" / model
    for path in home.glob("[0-9]*/*"):
        path.unlink()
        path.parent.rmdir()
    write_identity(work, model, number)
    return y.commit(work, f"version {number}")


def try_push(y: Yard, work: Path, *refs: str) -> tuple[bool, str]:
    """Whether the push ended well for the pusher, and what they saw."""
    try:
        return True, y.push(work, *refs)
    except AssertionError as error:
        return False, str(error)


def head(y: Yard, work: Path) -> str:
    """Where the server's main stands, by its own files."""
    folder = _store(y) / "git" / f"{work.name.removeprefix('work-')}.git"
    return y.git(folder, "rev-parse", "refs/heads/main").strip()


def push_until_accepted(y: Yard, work: Path, commit: str, seconds: float = 60.0) -> None:
    """Push as often as it takes for main to stand at `commit`."""
    until = time.monotonic() + seconds
    while True:
        _, said = try_push(y, work)
        if head(y, work) == commit:
            return
        assert time.monotonic() < until, said


# what must hold


def check_whole(y: Yard, *works: Path, shared: bool = False, seconds: float = 60.0) -> None:
    """Once all is quiet: every push has ended, what git has is served, nothing was left behind.

    `shared`: another server uses the store, so that what git left is removed by age alone.
    """
    y.wait_for(lambda: not _unfinished(y), "every push to have ended", seconds)
    for work in works:
        _check_nothing_lost(y, work)
    if shared:
        bare.sweep_all(_store(y), 0.0)
    check_store(y)
    said = y.server.log()
    assert not any(words in said for words in BROKEN), said


def _check_nothing_lost(y: Yard, work: Path) -> None:
    """The commit that git has was served, and every one before it that was accepted is over."""
    rows = _pushes(y, work)
    last = [row for row in rows if row["new_commit"] == head(y, work)]
    assert "served" in {row["state"] for row in last}, rows
    history = set(y.git(work, "rev-list", "HEAD").split())
    for row in rows:
        if row["state"] == "abandoned":
            served = {one["new_commit"] for one in rows if one["state"] == "served"}
            moved = row["new_commit"] in history and row["new_commit"] in served
            assert moved or row["reason"], row


def check_store(y: Yard) -> None:
    """On the disk is what the rows say, once what nobody knows was swept; nothing unfinished."""
    store, known = _store(y), snapshot_rows(y)
    stored.sweep(store / "snapshots", alive, known, time.time(), grace_s=0)
    assert stored.digests(store / "snapshots") == sorted(known)
    for digest in known:
        stored.verify(store / "snapshots", digest)
    assert leftovers(y) == []


def leftovers(y: Yard) -> list[str]:
    """Whatever only a push or a backup under way may have."""
    store = _store(y)
    found = [
        *(store / "snapshots").glob("tmp-*"),
        *(store / "git").glob(".*"),
        *(store / "git").glob("*.git/objects/tmp_objdir-*"),
        *(store / "git").glob("*.git/*.lock"),
        *(store / "git").glob("*.git/refs/**/*.lock"),
        *(store / "lfs" / "incoming").glob("*"),
        *(y.state / "backing-up").glob("*"),
        *y.state.glob("*.new"),
    ]
    return sorted(str(path) for path in found)


def snapshot_rows(y: Yard) -> set[str]:
    return {digest for (digest,) in query(y, "SELECT digest FROM snapshot")}


def query(y: Yard, text: str) -> list[Any]:
    """Rows, read past the server."""
    url = str(y.flags.get("database", ""))
    if url:
        with psycopg.connect(url) as connection:
            return connection.execute(text).fetchall()
    path = f"file:{y.state / 'modelyard.db'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True, timeout=60)) as connection:
        return connection.execute(text).fetchall()


def _store(y: Yard) -> Path:
    return Path(str(y.flags.get("store_dir", y.state / "store")))


def _pushes(y: Yard, work: Path) -> list[dict[str, Any]]:
    name = work.name.removeprefix("work-")
    status, page = y.api("GET", f"/pushes?repository={name}&limit=500")
    assert status == 200, page
    rows: list[dict[str, Any]] = page["items"]
    return rows


def _unfinished(y: Yard) -> bool:
    with suppress(OSError, http.client.HTTPException):
        status, page = y.api("GET", "/pushes?limit=500")
        return status != 200 or any(row["state"] not in OVER for row in page["items"])
    return True


# killing


def kill_control(y: Yard) -> None:
    """SIGKILL to the control process, and wait for the next one to answer."""
    pid = y.control_pid()
    assert pid, y.server.log()
    os.kill(pid, 9)
    wait_for_another(y, pid)


def wait_for_another(y: Yard, pid: int, seconds: float = 60.0) -> None:
    y.wait_for(lambda: y.control_pid() not in (0, pid), "another control process", seconds)
    y.wait_for(y.answers, "the control process to answer", seconds)


def eventually(true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Like `Yard.wait_for`, when the server may be dead meanwhile."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.02)
