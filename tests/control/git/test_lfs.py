"""The stock git-lfs client sends large files to the admin port and fetches them."""

import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from control.repository_settings import PushBudgets, RepositorySettings
from repository.lfs.paths import LfsPaths
from support.git_server import (
    Served,
    cutting,
    git_server,
    lfs_work_tree,
    needs_lfs,
)

pytestmark = needs_lfs

MIB = 2**20


@pytest.fixture(scope="module")
def server(migrated_sqlite: Path) -> Iterator[Served]:
    with git_server(migrated_sqlite) as running:
        running.user("ada", "operator")
        yield running


@pytest.fixture
def name(server: Served, request: pytest.FixtureRequest) -> str:
    server.requests.clear()
    return server.create(f"r{abs(hash(request.node.name)):x}")


def weights(size_bytes: int) -> bytes:
    return random.Random(7).randbytes(size_bytes)


def place(server: Served, name: str, content: bytes) -> Path:
    """Where the repository has the object."""
    return LfsPaths(server.store / "lfs").claim(name, sha256(content).hexdigest())


@pytest.mark.parametrize(
    "size_bytes", [5 * MIB, pytest.param(200 * MIB, marks=pytest.mark.slow)], ids=["5MB", "200MB"]
)
def test_a_large_file_is_pushed_and_cloned(
    server: Served, name: str, tmp_path: Path, size_bytes: int
) -> None:
    content, token = weights(size_bytes), server.token("ada")
    work = lfs_work_tree(tmp_path / "work", {"models/m/1/model.onnx": content})
    pushed = server.push(work, name, token)
    assert pushed.returncode == 0, pushed.stderr
    cloned = server.clone(tmp_path / "copy", name, token)
    assert cloned.returncode == 0, cloned.stderr
    assert (tmp_path / "copy/models/m/1/model.onnx").read_bytes() == content
    assert any(line.startswith(f"POST {name}.git/info/lfs/objects/") for line in server.requests)


def test_git_lfs_does_without_locks(server: Served, name: str, tmp_path: Path) -> None:
    work = lfs_work_tree(tmp_path / "work", {"a.onnx": b"weights"})
    pushed = server.push(work, name, server.token("ada"))
    assert pushed.returncode == 0, pushed.stderr
    assert f"POST {name}.git/info/lfs/locks/verify 404" in server.requests


def test_a_second_push_sends_no_object_again(server: Served, name: str, tmp_path: Path) -> None:
    token = server.token("ada")
    first = lfs_work_tree(tmp_path / "first", {"a.onnx": b"weights"})
    second = lfs_work_tree(tmp_path / "second", {"a.onnx": b"weights", "b.txt": b"more"})
    assert server.push(first, name, token).returncode == 0
    server.requests.clear()
    assert server.push(second, name, token, "main:other").returncode == 0
    assert not [line for line in server.requests if line.startswith("PUT")]


def test_a_large_file_without_the_scope_is_refused(
    server: Served, name: str, tmp_path: Path
) -> None:
    work = lfs_work_tree(tmp_path / "work", {"a.onnx": b"weights"})
    refused = server.push(work, name, server.token("ada", "read"))
    assert refused.returncode != 0
    assert f"may not push to any ref of '{name}'" in refused.stderr
    assert not place(server, name, b"weights").exists()


def test_a_file_above_the_budget_is_refused_with_its_size(
    server: Served, name: str, tmp_path: Path
) -> None:
    server.change(name, RepositorySettings(budgets=PushBudgets(max_lfs_bytes=1000)))
    work = lfs_work_tree(tmp_path / "work", {"a.onnx": bytes(1001)})
    refused = server.push(work, name, server.token("ada"))
    assert refused.returncode != 0
    assert "1001 bytes are too many; at most 1000 fit" in refused.stderr


def test_an_object_that_was_changed_on_the_disk_is_refused(
    server: Served, name: str, tmp_path: Path
) -> None:
    work = lfs_work_tree(tmp_path / "work", {"a.onnx": b"weights"})
    oid = sha256(b"weights").hexdigest()
    kept = work / f".git/lfs/objects/{oid[:2]}/{oid[2:4]}/{oid}"
    kept.chmod(0o644)
    kept.write_bytes(b"heights")
    refused = server.push(work, name, server.token("ada"))
    assert refused.returncode != 0
    assert "was changed on its way" in refused.stderr
    assert not place(server, name, b"weights").exists()


def test_a_broken_transfer_is_resumed(server: Served, name: str, tmp_path: Path) -> None:
    content, token = weights(8 * MIB), server.token("ada")
    work = lfs_work_tree(tmp_path / "work", {"a.onnx": content})
    assert server.push(work, name, token).returncode == 0
    with cutting(server.port, 4 * MIB) as port:
        cloned = server.clone(tmp_path / "copy", name, token, port)
    assert cloned.returncode == 0, cloned.stderr
    assert (tmp_path / "copy/a.onnx").read_bytes() == content
    gets = [line for line in server.requests if line.startswith("GET") and "/objects/" in line]
    assert gets[0].endswith(" 200")
    assert gets[-1].endswith(" 206")
    assert "bytes=" in gets[-1]


def test_an_object_that_is_missing_is_named(server: Served, name: str, tmp_path: Path) -> None:
    token = server.token("ada")
    work = lfs_work_tree(tmp_path / "work", {"a.onnx": b"weights"})
    assert server.push(work, name, token).returncode == 0
    place(server, name, b"weights").unlink()
    cloned = server.clone(tmp_path / "copy", name, token)
    assert cloned.returncode != 0
    assert "the repository has no such object" in cloned.stderr
