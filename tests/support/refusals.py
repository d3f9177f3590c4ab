"""A push that is to be refused, and what must be as it was after it: `refused(y, work, …)`.

`tree_of(...)` makes commits of trees that no honest git would make.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.git_http import blob, git, kind_of
from support.yard import Yard, write_identity

REMOTE = "remote: "
_LINE = re.compile(r"remote: (.*?)\s*(?:\x1b\[K)?$")


class Standing(NamedTuple):
    """What a refused push leaves alone."""

    refs: str
    snapshots: frozenset[str]
    quarantines: frozenset[str]
    index: tuple[str, ...]
    models: str


def standing(y: Yard, name: str) -> Standing:
    """How things stand in the store, in the rows and in the gateway."""
    bare = y.state / "store/git" / f"{name}.git"
    snapshots = y.state / "store/snapshots"
    return Standing(
        git(bare, "for-each-ref"),
        frozenset(one.name for one in snapshots.iterdir()) if snapshots.exists() else frozenset(),
        frozenset(one.name for one in bare.glob("objects/tmp_objdir-*")),
        tuple(sorted(map(str, y.server.index()))),
        str(y.api("GET", "/models?limit=200")[1]["items"]),
    )


def pushes(y: Yard, name: str) -> list[dict[str, Any]]:
    """The rows of a repository's pushes, newest first."""
    found: list[dict[str, Any]] = y.api("GET", f"/pushes?repository={name}&limit=200")[1]["items"]
    return found


def refused(y: Yard, work: Path, *refs: str, says: str | tuple[str, ...], rows: int = 1) -> str:
    """Push and be refused for what `says` names, each on a line of the pusher's terminal.

    `rows`: refused pushes that are new, 0 where git itself refuses. What the pusher saw.
    """
    name = work.name.removeprefix("work-")
    before, known = standing(y, name), len(pushes(y, name))
    said = y.push(work, *refs, ok=False)
    lines = remote_lines(said)
    for text in (says,) if isinstance(says, str) else says:
        assert any(text in line for line in lines), (text, said)
    assert "[remote rejected]" in said, said
    assert str(y.state) not in said
    assert "tmp-" not in said, said
    after = standing(y, name)
    assert after == before
    assert not after.quarantines
    assert not [one for one in after.snapshots if one.startswith("tmp-")]
    new = pushes(y, name)[: len(pushes(y, name)) - known]
    assert [row["state"] for row in new] == ["refused"] * rows, new
    return said


def remote_lines(said: str) -> list[str]:
    """What came from the server, as the pusher reads it."""
    return [found[1] for line in said.splitlines() if (found := _LINE.match(line))]


def started(y: Yard, name: str, *models: str, **settings: Any) -> Path:
    """A working copy of a new repository with identity models in it, nothing committed yet."""
    work = y.repository(name, **settings)
    for model in models:
        write_identity(work, model, 1)
    return work


def write(work: Path, files: Mapping[str, bytes | str]) -> None:
    for path, content in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(content.encode() if isinstance(content, str) else content)


def config_of(work: Path, model: str) -> Path:
    return work / "models" / model / "config.pbtxt"


def tree_of(work: Path, *entries: tuple[str, str, str]) -> str:
    """The id of a tree of (mode, object, name), however odd."""
    lines = "".join(f"{mode} {kind_of(mode)} {oid}\t{name}\0" for mode, oid, name in entries)
    return git(work, "mktree", "-z", "--missing", stdin=lines.encode(errors="surrogateescape"))


def commit_with(work: Path, *entries: tuple[str, str], content: bytes = b"content") -> str:
    """A commit of one model `odd` whose version has entries of those modes and names, were they
    impossible."""
    config = (
        'backend: "identity" input { name: "A" data_type: TYPE_FP32 dims: 1 } '
        'output { name: "A" data_type: TYPE_FP32 dims: 1 }'
    )
    empty = blob(work, b"plain")
    filled = blob(work, content)
    odd = [(mode, "1" * 40 if mode == "160000" else filled, name) for mode, name in entries]
    version = tree_of(work, *odd, ("100644", empty, "plain.txt"))
    model = tree_of(
        work, ("040000", version, "1"), ("100644", blob(work, config.encode()), "config.pbtxt")
    )
    top = tree_of(work, ("040000", tree_of(work, ("040000", model, "odd")), "models"))
    return git(work, "commit-tree", top, "-m", "odd")
