"""A whole server's folders and rows for tests of backups: real git, LFS objects and snapshots."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from control.deployments import aliases, pushes, repositories
from control.deployments.sealed_model import SealedModel, SealedVersion
from control.sql import store
from control.sql.database import Database
from repository.git import bare
from repository.git.bare import ReceiveLimits
from repository.git.rules import RefUpdate
from repository.lfs.store import LfsStore
from repository.snapshots.write import SealedSnapshot, SnapshotWriter
from support.control import ADA
from support.control_deploy import MAIN, ZEROS
from support.git_http import commit, git, work_tree

WEIGHTS = b"weights" * 1000
OID = hashlib.sha256(WEIGHTS).hexdigest()


@dataclass(frozen=True)
class Home:
    """One server; `work` is the pusher's checkout."""

    database: Database
    state: Path
    store: Path
    work: Path


def build(database: Database, folder: Path) -> Home:
    """A repository whose commit is pushed and deployed, with an alias, and an empty repository."""
    home = Home(database, folder / "state", folder / "state" / "store", folder / "work")
    home.store.mkdir(parents=True)
    for name in ("vision", "empty"):
        with database.change(ADA) as tx:
            repositories.create_repository(tx, name)
        asyncio.run(bare.create(home.store, name, ReceiveLimits()))
    with database.change(ADA) as tx:
        (home.store / "store.json").write_text(store.store_id(tx))
    (home.state / "server.json").write_text('{"id": "one"}')
    work_tree(home.work)
    asyncio.run(LfsStore(home.store).receive("vision", OID, len(WEIGHTS), _chunks()))
    deploy(home, 1)
    with database.change(ADA) as tx:
        aliases.set_alias(tx, "digits", "champion", 1)
    return home


def deploy(home: Home, number: int) -> str:
    """Push a commit with version `number` and deploy it; the commit's id."""
    new = commit(home.work, {f"models/digits/{number}/label.txt": b"%d" % number})
    bare_path = home.store / "git" / "vision.git"
    git(bare_path, "fetch", "--quiet", str(home.work), f"main:{MAIN}")
    with home.database.change(ADA) as tx:
        update = RefUpdate(ZEROS, new, MAIN)
        push_id = pushes.receive(tx, "vision", update, pushes.PushFacts()).id
        pushes.accept(tx, push_id)
    git(bare_path, "update-ref", f"refs/internal/deployed/{push_id}", new)
    sealed = _snapshot(home, number)
    with home.database.change(ADA) as tx:
        pushes.deploy(tx, push_id, {"digits": _row(sealed)})
    return new


async def _chunks() -> AsyncIterator[bytes]:
    yield WEIGHTS


def _snapshot(home: Home, number: int) -> SealedSnapshot:
    with SnapshotWriter(home.store / "snapshots").begin("digits") as draft:
        draft.add("config.pbtxt", [b'backend: "onnxruntime"'])
        for version in range(1, number + 1):
            path = LfsStore(home.store).path("vision", OID)
            draft.link(f"{version}/model.onnx", path, OID, len(WEIGHTS))
            draft.add(f"{version}/label.txt", [b"%d" % version])
        return draft.seal()


def _row(sealed: SealedSnapshot) -> SealedModel:
    versions = {
        number: SealedVersion(one.digest, one.size_bytes, len(one.files))
        for number, one in sealed.versions.items()
    }
    return SealedModel("digits", sealed.digest, sealed.size_bytes, 3, versions)
