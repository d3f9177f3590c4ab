"""The stock git client pushes to and fetches from the admin port, as somebody."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from repository.git.receive import ReceiveTiming
from support.admin import PASSWORD, basic
from support.git_http import client, commit, git, work_tree
from support.git_server import Served, credentials, eventually, git_server


@pytest.fixture(scope="module")
def server(migrated_sqlite: Path) -> Iterator[Served]:
    with git_server(migrated_sqlite) as running:
        running.user("ada", "operator")
        running.user("vic", "viewer")
        yield running


@pytest.fixture
def name(server: Served, request: pytest.FixtureRequest) -> str:
    server.requests.clear()
    server.decided.clear()
    return server.create(f"r{abs(hash(request.node.name)):x}")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return work_tree(tmp_path / "work")


@pytest.mark.parametrize("size", [7, 3 * 2**20], ids=["small", "chunked"])
def test_a_push_arrives_and_can_be_cloned(
    server: Served, name: str, work: Path, tmp_path: Path, size: int
) -> None:
    commit(work, {"models/m/2/model.onnx": bytes(range(256)) * (size // 256 + 1)})
    token = server.token("ada")
    pushed = server.push(work, name, token)
    assert pushed.returncode == 0, pushed.stderr
    assert server.clone(tmp_path / "copy", name, token).returncode == 0
    assert git(tmp_path / "copy", "rev-parse", "HEAD") == git(work, "rev-parse", "HEAD")


def test_the_hooks_are_told_whose_push_it_is_until_it_ends(
    server: Served, name: str, work: Path
) -> None:
    server.push(work, name, server.token("ada"))
    pushings, requests = zip(*server.decided, strict=True)
    assert [request.hook for request in requests] == ["pre-receive", "post-receive"]
    assert all(one.principal.token_id for one in pushings)
    assert {(one.address, one.repository) for one in pushings} == {("127.0.0.1", name)}
    assert len({request.key for request in requests}) == 1
    assert eventually(lambda: len(server.keys) == 0)
    assert server.keys.find(requests[0].key) is None


def test_a_person_pushes_with_name_and_password(server: Served, name: str, work: Path) -> None:
    given = credentials(PASSWORD, "ada")
    pushed = client(work, "push", server.url(name), "main", **given)
    assert pushed.returncode == 0, pushed.stderr
    assert server.decided[0][0].principal.id == "user:ada"


def test_nobody_is_asked_for_credentials_at_the_first_request(server: Served, name: str) -> None:
    found = server.ask("GET", f"{name}.git/info/refs?service=git-upload-pack")
    assert found.status == 401
    assert found.headers["www-authenticate"].startswith('Basic realm="modelyard"')


def test_a_wrong_token_is_refused(server: Served, name: str, work: Path) -> None:
    wrong = "myd_" + "x" * 40
    pushed = server.push(work, name, wrong)
    assert pushed.returncode != 0
    assert "remote: this token is unknown, revoked or expired" in pushed.stderr
    assert "Authentication failed" in pushed.stderr
    assert wrong not in pushed.stderr


def test_a_token_without_the_scope_is_told_which_one_it_lacks(
    server: Served, name: str, work: Path
) -> None:
    pushed = server.push(work, name, server.token("ada", "push:other:*", "read"))
    assert pushed.returncode != 0
    assert f"remote: this token may not push to any ref of '{name}'" in pushed.stderr
    assert f"push:{name}:*" in pushed.stderr


def test_a_token_for_some_refs_pushes_those_alone(server: Served, name: str, work: Path) -> None:
    token = server.token("ada", f"push:{name}:refs/heads/exp-*")
    assert server.push(work, name, token, "main:exp-1").returncode == 0
    refused = server.push(work, name, token, "main")
    assert refused.returncode != 0
    assert f"it lacks the scope push:{name}:refs/heads/main" in refused.stderr


def test_a_viewer_clones_but_does_not_push(
    server: Served, name: str, work: Path, tmp_path: Path
) -> None:
    assert server.push(work, name, server.token("ada")).returncode == 0
    given = credentials(PASSWORD, "vic")
    arguments = ("clone", "--quiet", server.url(name), "copy")
    assert client(tmp_path, *arguments, **given).returncode == 0
    refused = client(work, "push", server.url(name), "main:other", **given)
    assert "takes the role operator, not viewer" in refused.stderr
    assert "403" in refused.stderr


def test_a_token_that_only_infers_reads_no_repository(
    server: Served, name: str, tmp_path: Path
) -> None:
    refused = server.clone(tmp_path / "copy", name, server.token("vic", "infer:m"))
    assert refused.returncode != 0
    assert "lacks the scope read" in refused.stderr


def test_a_repository_that_is_not_there_is_named(server: Served, tmp_path: Path) -> None:
    refused = server.clone(tmp_path / "copy", "nowhere", server.token("ada"))
    assert "remote: there is no repository 'nowhere'" in refused.stderr


def test_a_busy_repository_says_when_to_come_back(migrated_sqlite: Path, tmp_path: Path) -> None:
    with git_server(migrated_sqlite, pace=ReceiveTiming(most_at_once=0, wait_s=0.2)) as server:
        server.user("ada", "operator")
        name, token = server.create("zoo"), server.token("ada")
        found = server.ask("GET", f"{name}.git/info/refs?service=git-upload-pack", token)
        shown = server.clone(tmp_path / "copy", name, token)
    assert found.status == 503
    assert int(found.headers["retry-after"]) >= 1
    assert "remote: 'zoo' is busy" in shown.stderr


def test_a_push_that_loses_a_race_is_told_what_to_do(
    server: Served, name: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, repository = server.token("ada"), server.bare(name).path
    assert server.push(work, name, token).returncode == 0

    def another_push() -> None:
        same_files = ("commit-tree", "-m", "quicker", "-p", "main", "main^{tree}")
        quicker = git(repository, "-c", "user.name=b", "-c", "user.email=b@b", *same_files)
        git(repository, "update-ref", "refs/heads/main", quicker)

    monkeypatch.setattr(server, "meanwhile", another_push)
    commit(work, {"models/m/2/about.txt": b"slower"})
    lost = server.push(work, name, token)
    monkeypatch.undo()
    assert lost.returncode != 0
    assert "another push moved main while this one was under way" in lost.stderr
    assert "git pull --rebase origin main" in lost.stderr
    git(work, "pull", "--quiet", "--rebase", server.url(name), "main", **credentials(token))
    assert server.push(work, name, token).returncode == 0


def test_guessing_a_password_is_slowed_down(migrated_sqlite: Path) -> None:
    with git_server(migrated_sqlite) as server:
        server.user("ada", "operator")
        name = server.create("zoo")
        path = f"{name}.git/info/refs?service=git-receive-pack"
        wrong = {"Authorization": basic("ada", "wrong")}
        with ThreadPoolExecutor(8) as threads:
            tries = list(threads.map(lambda _: server.ask("GET", path, headers=wrong), range(8)))
    slowed = [one for one in tries if one.status == 429]
    assert slowed
    assert {one.status for one in tries} == {401, 429}
    assert all(int(one.headers["retry-after"]) >= 1 for one in slowed)


def test_a_tokens_rate_counts_a_clone_as_one(
    server: Served, name: str, work: Path, tmp_path: Path
) -> None:
    server.push(work, name, server.token("ada"))
    token = server.token("ada", "read", rate_per_s=0.01, burst=1)
    assert server.clone(tmp_path / "first", name, token).returncode == 0
    refused = server.clone(tmp_path / "second", name, token)
    assert "remote: this token may send 0.01 requests a second" in refused.stderr


def test_a_fetch_follows_a_clone_with_protocol_version_two(
    server: Served, name: str, work: Path, tmp_path: Path
) -> None:
    token = server.token("ada")
    server.push(work, name, token)
    server.clone(tmp_path / "copy", name, token)
    new = commit(work, {"models/m/3/model.onnx": b"more"})
    server.push(work, name, token)
    git(tmp_path / "copy", "-c", "protocol.version=2", "pull", "--quiet", **credentials(token))
    assert git(tmp_path / "copy", "rev-parse", "HEAD") == new
