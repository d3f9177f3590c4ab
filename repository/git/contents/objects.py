"""Reads trees, commits and refs of a bare repository without checking anything out."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from repository.git.contents.tree import TreeEntry
from repository.git.errors import BadGitName, GitFailed, GitTimedOut, UnknownRevision
from repository.git.names import is_oid, ref_problem
from repository.git.process import READ_SECS, GitProcess, run, started
from repository.git.quarantine import Quarantine
from repository.git.text import plain_text

MOST_ENTRIES = 100_000
"""Entries of one tree that are read; a tree of trees can be made that unfolds to billions."""

_T = TypeVar("_T")
_CHUNK_BYTES = 64 * 1024
_MOST_PATH_BYTES = 1024 * 1024
_MOST_FIELD_BYTES = 4096
_FIELDS = ("%H", "%T", "%P", "%an", "%ae", "%cn", "%ce", "%s", "%at", "%ct")


@dataclass(frozen=True, slots=True)
class Person:
    """Who a commit says wrote it; nobody has checked. Plain text."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit; times are Unix seconds, 0 where the commit has none that makes sense."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    authored_at: int
    committer: Person
    committed_at: int
    subject: str


async def list_tree(
    repository: Path,
    commit: str,
    quarantine: Quarantine | None = None,
    most_entries: int = MOST_ENTRIES,
) -> list[TreeEntry]:
    """Every file of a commit in git's order, the first `most_entries` of them if there are more.

    Raises `BadGitName` when `commit` is not an object id, `GitFailed` when it is of nothing here.
    """
    _need_oid(commit)
    command = ("ls-tree", "-r", "-z", "--long", "--full-tree", "--end-of-options", commit)
    entries: list[TreeEntry] = []
    async with aclosing(_answer(repository, command, quarantine, _MOST_PATH_BYTES)) as records:
        async for record in records:
            if len(entries) == most_entries:
                break
            entries.append(_entry(record))
    return entries


async def resolve(repository: Path, revision: str) -> str:
    """The commit that a branch, a tag, a whole ref or a whole or shortened commit id names.

    Raises `BadGitName` for any other spelling, `UnknownRevision`.
    """
    for candidate in _spellings(revision):
        command = (
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{candidate}^{{commit}}",
        )
        output = await run(repository, *command, accepted=(0, 1, 128))
        if output.status == 0:
            return output.stdout.decode().strip()
    remedy = "name a branch, a tag or a commit id of at least 7 digits"
    raise UnknownRevision(f"there is no commit '{plain_text(revision)}' here; {remedy}")


async def commit_info(
    repository: Path, commit: str, quarantine: Quarantine | None = None
) -> Commit:
    """What one commit says of itself. Raises `BadGitName`, `UnknownRevision`."""
    try:
        found = await _log(repository, commit, 1, quarantine)
    except GitFailed as error:
        unknown = f"there is no commit {commit} in '{repository.stem}' ({error.words})"
        raise UnknownRevision(unknown) from error
    if not found:
        raise UnknownRevision(f"{commit} in '{repository.stem}' is no commit")
    return found[0]


async def log(repository: Path, revision: str, limit: int) -> list[Commit]:
    """A branch's, tag's or commit's history, newest first. Raises as `resolve` does."""
    return await _log(repository, await resolve(repository, revision), limit, None)


async def refs(repository: Path) -> dict[str, str]:
    """Per branch and tag, by whole name, the object it points to."""
    form = "--format=%(objectname) %(refname)"
    output = await run(repository, "for-each-ref", form, "refs/heads/", "refs/tags/")
    lines = output.stdout.decode(errors="surrogateescape").splitlines()
    return {ref: oid for oid, _, ref in (line.partition(" ") for line in lines)}


async def is_ancestor(
    repository: Path, ancestor: str, commit: str, quarantine: Quarantine | None = None
) -> bool:
    """Whether `commit` has `ancestor` in its history, or is it: whether a push moves forward."""
    _need_oid(ancestor)
    _need_oid(commit)
    command = ("merge-base", "--is-ancestor", "--end-of-options", ancestor, commit)
    output = await run(repository, *command, quarantine=quarantine, accepted=(0, 1))
    return output.status == 0


async def _answer(
    repository: Path, command: Sequence[str], quarantine: Quarantine | None, most_bytes: int
) -> AsyncGenerator[bytes]:
    """What git writes between NULs, as it comes, each cut after `most_bytes`.

    Raises `GitFailed`, and `GitTimedOut` when it takes too long to write.
    """
    ends = asyncio.get_running_loop().time() + READ_SECS
    async with started(repository, command, quarantine=quarantine) as git:
        rest = b""
        while chunk := await _within(ends, git, git.stdout.read(_CHUNK_BYTES)):
            *whole, rest = (rest + chunk).split(b"\0")
            for record in whole:
                yield record[:most_bytes]
            rest = rest[:most_bytes]
        status = await _within(ends, git, git.ended())
        if status:
            raise git.failed(status)


async def _within(ends: float, git: GitProcess, waiting: Coroutine[Any, Any, _T]) -> _T:
    try:
        async with asyncio.timeout_at(ends):
            return await waiting
    except TimeoutError:
        late = f"no answer within {READ_SECS:g} s"
        raise GitTimedOut(git.command, -signal.SIGTERM, late) from None


def _entry(record: bytes) -> TreeEntry:
    facts, _, path = record.partition(b"\t")
    mode, kind, oid, size = facts.decode().split()
    size_bytes = 0 if size == "-" else int(size)
    return TreeEntry(mode, kind, oid, size_bytes, path.decode(errors="surrogateescape"))


def _spellings(revision: str) -> list[str]:
    """What a user's word for a commit may mean, as names that git cannot take for an option."""
    if is_oid(revision):
        return [revision]
    whole = revision.startswith("refs/")
    names = [revision] if whole else [f"refs/heads/{revision}", f"refs/tags/{revision}"]
    found = [name for name in names if not ref_problem(name)]
    if 7 <= len(revision) < 40 and not revision.strip("0123456789abcdef"):
        found.append(revision)
    if not found:
        shown = plain_text(revision, 100)
        raise BadGitName(f"'{shown}' cannot name a commit: {ref_problem(names[0])}")
    return found


async def _log(
    repository: Path, commit: str, limit: int, quarantine: Quarantine | None
) -> list[Commit]:
    _need_oid(commit)
    form = f"--format=tformat:{'%x00'.join(_FIELDS)}"
    options = ("-z", f"--max-count={limit}", form, "--no-show-signature")
    command = ("log", *options, "--end-of-options", commit, "--")
    fields = [field async for field in _answer(repository, command, quarantine, _MOST_FIELD_BYTES)]
    starts = range(0, len(fields), len(_FIELDS))
    return [_commit(fields[start : start + len(_FIELDS)]) for start in starts]


def _commit(fields: list[bytes]) -> Commit:
    oid, tree, parents, *words, authored, committed = fields
    author, author_email, committer, committer_email, subject = (
        plain_text(word, 200) for word in words
    )
    return Commit(
        oid.decode(),
        tree.decode(),
        tuple(parents.decode().split()),
        Person(author, author_email),
        _seconds(authored),
        Person(committer, committer_email),
        _seconds(committed),
        subject,
    )


def _seconds(text: bytes) -> int:
    """A commit's time is what its author wrote; one past the year 9999 no calendar shows."""
    seconds = int(text) if text.isdigit() and len(text) < 13 else 0
    return seconds if seconds < 253_402_300_800 else 0


def _need_oid(text: str) -> None:
    if not is_oid(text):
        shown = plain_text(text, 100)
        raise BadGitName(
            f"'{shown}' is not a whole commit id of 40 or 64 hex digits; resolve it first"
        )
