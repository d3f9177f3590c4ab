"""Trees, commits and files, read out of a bare repository without a checkout."""

import asyncio
import random
from pathlib import Path

import pytest

from repository.git import bare
from repository.git.bare import BareRepository, ReceiveLimits
from repository.git.contents import objects
from repository.git.contents.blobs import Blobs, blobs
from repository.git.errors import (
    BadGitName,
    BadQuarantine,
    GitFailed,
    GitTimedOut,
    UnknownRevision,
    WrongObject,
)
from repository.git.process import run
from repository.git.quarantine import quarantine_of
from support.git_http import blob, commit, commit_of, git, work_tree

ZERO = "0" * 40


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return work_tree(tmp_path / "work")


@pytest.fixture
def zoo(work: Path, tmp_path: Path) -> BareRepository:
    return asyncio.run(bare.create(tmp_path / "store", "zoo", ReceiveLimits()))


def send(
    work: Path, zoo: BareRepository, revision: str = "main", ref: str = "refs/heads/main"
) -> str:
    """Put a commit into the bare repository, past its hooks."""
    git(work, "update-ref", "refs/heads/sent", revision)
    git(zoo.path, "fetch", "--quiet", "--force", str(work), f"sent:{ref}")
    return git(work, "rev-parse", revision)


def test_a_tree_is_listed_with_sizes_at_every_depth(work: Path, zoo: BareRepository):
    oid = send(work, zoo)
    entries = asyncio.run(objects.list_tree(zoo.path, oid))
    assert [(e.mode, e.kind, e.size_bytes, e.path) for e in entries] == [
        ("100644", "blob", 7, "models/m/1/model.onnx"),
        ("100644", "blob", 0, "models/m/config.pbtxt"),
    ]


def test_odd_entries_are_listed_as_they_are(work: Path, zoo: BareRepository):
    link, commit_oid = blob(work, b"/etc/passwd"), git(work, "rev-parse", "HEAD")
    odd = commit_of(work, ("120000", link, "a\nb"), ("160000", commit_oid, "caf\udce9"))
    entries = asyncio.run(objects.list_tree(zoo.path, send(work, zoo, odd)))
    assert [(e.mode, e.kind, e.size_bytes, e.path) for e in entries] == [
        ("120000", "blob", 11, "a\nb"),
        ("160000", "commit", 0, "caf\udce9"),
    ]


def test_a_tree_that_unfolds_to_billions_is_read_in_part(work: Path, zoo: BareRepository):
    tree = git(work, "mktree", stdin=f"100644 blob {blob(work)}\tf\n".encode())
    for _ in range(10):
        rows = "".join(f"040000 tree {tree}\td{number}\n" for number in range(10))
        tree = git(work, "mktree", stdin=rows.encode())
    oid = send(work, zoo, git(work, "commit-tree", tree, "-m", "bomb"))
    assert len(asyncio.run(objects.list_tree(zoo.path, oid, most_entries=1000))) == 1000


def test_names_of_commits_lead_to_the_same_one(work: Path, zoo: BareRepository):
    oid = send(work, zoo)
    git(zoo.path, "tag", "v1", oid)
    for name in ("main", "refs/heads/main", "v1", "refs/tags/v1", oid, oid[:10]):
        assert asyncio.run(objects.resolve(zoo.path, name)) == oid


@pytest.mark.parametrize(
    "name",
    ["--upload-pack=x", "-h", "main~1", "main:config", "@{1}", "HEAD", "", "a b", "refs/x/y"],
)
def test_other_spellings_do_not_reach_git(name: str, zoo: BareRepository):
    with pytest.raises(BadGitName):
        asyncio.run(objects.resolve(zoo.path, name))


@pytest.mark.parametrize("name", ["gone", "f" * 40, "abcdef1"])
def test_an_unknown_commit_is_named(name: str, zoo: BareRepository):
    with pytest.raises(UnknownRevision, match=f"no commit '{name}' here"):
        asyncio.run(objects.resolve(zoo.path, name))


def test_a_commit_says_who_when_and_what(work: Path, zoo: BareRepository):
    oid = send(work, zoo)
    info = asyncio.run(objects.commit_info(zoo.path, oid))
    assert info.oid == oid
    assert info.tree == git(work, "rev-parse", "main^{tree}")
    assert (info.author.name, info.author.email) == ("Ada", "ada@example.com")
    assert info.parents == ()
    assert info.committed_at == int(git(work, "log", "-1", "--format=%ct"))


def test_a_hostile_commit_becomes_plain_text(work: Path, zoo: BareRepository):
    tree = git(work, "rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\nauthor \x1b[31mEve\u202e <e@x> 99999999999999 +0000\n"
    raw = (
        text.encode()
        + b"committer Eve <e@x> 1 +0000\n\n"
        + b"\x1b]0;owned\x07sub\xe9ject "
        + b"x" * 2_000_000
        + b"\n\nbody\n"
    )
    odd = git(work, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=raw)
    info = asyncio.run(objects.commit_info(zoo.path, send(work, zoo, odd)))
    assert info.author.name == "Eve"
    assert info.authored_at == 0
    assert info.subject.startswith("sub\ufffdject x")
    assert len(info.subject) <= 200


def test_a_log_is_newest_first_and_bounded(work: Path, zoo: BareRepository):
    for number in range(3):
        commit(work, {"n": b"%d" % number}, f"change {number}")
    send(work, zoo)
    found = asyncio.run(objects.log(zoo.path, "main", 2))
    assert [one.subject for one in found] == ["change 2", "change 1"]
    assert found[0].parents == (found[1].oid,)


def test_a_commit_follows_from_its_ancestors_alone(work: Path, zoo: BareRepository):
    old = send(work, zoo)
    commit(work, {"n": b""})
    new = send(work, zoo)
    assert asyncio.run(objects.is_ancestor(zoo.path, old, new))
    assert asyncio.run(objects.is_ancestor(zoo.path, new, new))
    assert not asyncio.run(objects.is_ancestor(zoo.path, new, old))


def test_refs_are_branches_and_tags_and_no_pins(work: Path, zoo: BareRepository):
    oid = send(work, zoo)
    asyncio.run(bare.pin(zoo, oid, "push-1"))
    assert asyncio.run(objects.refs(zoo.path)) == {"refs/heads/main": oid}


async def _with_blobs(zoo: BareRepository, *calls: tuple[str, tuple[object, ...]]) -> list[object]:
    async with blobs(zoo.path) as reader:
        return [await getattr(reader, name)(*arguments) for name, arguments in calls]


def test_files_are_read_whole_or_as_they_come(work: Path, zoo: BareRepository):
    large = random.Random(1).randbytes(3 * 2**20 + 1)
    commit(work, {"large": large, "empty": b""})
    send(work, zoo)
    ids = {name: git(work, "rev-parse", f"main:{name}") for name in ("large", "empty")}

    async def main() -> list[bytes]:
        async with blobs(zoo.path) as reader:
            first = b"".join([chunk async for chunk in reader.stream(ids["large"])])
            return [first, await reader.read(ids["empty"], 10)]

    assert asyncio.run(main()) == [large, b""]


def test_an_object_that_is_no_file_is_refused(work: Path, zoo: BareRepository):
    oid = send(work, zoo)
    small = git(work, "rev-parse", "main:models/m/1/model.onnx")
    wrong = [(oid, "is commit"), ("f" * 40, "is missing"), ("main", "no")]
    for one, text in wrong:
        with pytest.raises(WrongObject, match=text):
            asyncio.run(_with_blobs(zoo, ("read", (one, 10))))
    with pytest.raises(WrongObject, match="has 7 bytes, of 6 allowed"):
        asyncio.run(_with_blobs(zoo, ("read", (small, 6))))


def test_a_reader_that_failed_says_so(zoo: BareRepository):
    async def twice(reader: Blobs) -> None:
        for _ in range(2):
            with pytest.raises(WrongObject) as caught:
                await reader.read("f" * 40, 10)
        assert "has failed before" in str(caught.value)

    async def main() -> None:
        async with blobs(zoo.path) as reader:
            await twice(reader)

    asyncio.run(main())


def test_a_failure_has_gits_last_words(zoo: BareRepository):
    with pytest.raises(GitFailed, match="git cat-file ended with status 128: fatal: Not a valid"):
        asyncio.run(run(zoo.path, "cat-file", "-p", "f" * 40))


def test_a_command_past_its_deadline_is_ended(zoo: BareRepository):
    with pytest.raises(GitTimedOut, match="no answer within"):
        asyncio.run(run(zoo.path, "gc", timeout_s=0.001))


@pytest.mark.parametrize("place", ["/tmp/tmp_objdir-incoming-x", "objects/pack", "objects/../x"])
def test_a_quarantine_elsewhere_is_refused(place: str, zoo: BareRepository):
    with pytest.raises(BadQuarantine):
        quarantine_of({"GIT_QUARANTINE_PATH": str(zoo.path / place)}, zoo.path)


def test_no_quarantine_is_none(zoo: BareRepository):
    assert quarantine_of({}, zoo.path) is None
