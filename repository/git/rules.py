"""What a push may contain: its files, and the refs it moves. Pure; every complaint is a finding."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from unicodedata import normalize

from repository.findings import Finding
from repository.git import names
from repository.git.contents.tree import TreeEntry
from repository.git.text import plain_text

_FILE_MODES = ("100644", "100755", "100664")


@dataclass(frozen=True, slots=True)
class TreeBudgets:
    """How large a pushed tree may be; files in Git LFS count with their pointer."""

    blob_bytes: int = 64 * 2**20
    total_bytes: int = 512 * 2**20
    files: int = 10_000


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """One ref that a push moves from `old` to `new`, both object ids, all zeros for "none"."""

    old: str
    new: str
    ref: str


def check_tree(entries: Sequence[TreeEntry], budgets: TreeBudgets) -> list[Finding]:
    """What is wrong with a tree, in the order of its paths.

    `entries` may end early, when there are more than `budgets.files`.
    """
    return list(_tree_findings(entries, budgets))


def check_refs(
    updates: Sequence[RefUpdate],
    protected: Collection[str],
    forced: Collection[str] = frozenset(),
    most_updates: int = 100,
) -> list[Finding]:
    """What is wrong with the refs that a push moves.

    `protected` are patterns of branches ("main", "release/*") or of whole refs ("refs/tags/v*").
    `forced` are the refs whose new commit does not follow from the old one.
    """
    return list(_ref_findings(updates, protected, forced, most_updates))


def is_protected(ref: str, protected: Iterable[str]) -> bool:
    """Whether a pattern names this ref; one that does not begin with "refs/" is of branches."""
    return any(
        fnmatchcase(ref, glob if glob.startswith("refs/") else f"refs/heads/{glob}")
        for glob in protected
    )


def _tree_findings(entries: Sequence[TreeEntry], budgets: TreeBudgets) -> Iterator[Finding]:
    if len(entries) > budgets.files:
        most = f"has more than the {budgets.files} files a push may have"
        yield _finding("", "E412", f"{most}; pack them into fewer, larger ones")
        return
    for entry in entries:
        yield from _entry_findings(entry, budgets)
    yield from _collisions(entries)
    total = sum(entry.size_bytes for entry in entries)
    if total > budgets.total_bytes:
        most = f"has {total} bytes, of {budgets.total_bytes} allowed"
        yield _finding("", "E411", f"{most}; put large files into Git LFS (git lfs track)")


def _entry_findings(entry: TreeEntry, budgets: TreeBudgets) -> Iterator[Finding]:
    code, message = _kind_complaint(entry) or _path_complaint(entry.path) or ("", "")
    if code:
        yield _finding(entry.path, code, message)
    if entry.size_bytes > budgets.blob_bytes:
        most = f"has {entry.size_bytes} bytes, of {budgets.blob_bytes} allowed"
        remedy = "put it into Git LFS (git lfs track) and rewrite the commit that added it"
        yield _finding(entry.path, "E410", f"{most}; {remedy}")


def _kind_complaint(entry: TreeEntry) -> tuple[str, str] | None:
    if entry.mode == "120000":
        return "E400", "is a symbolic link; replace it by the file it points to"
    if entry.mode == "160000":
        return "E401", "is a submodule, which is not fetched; commit its files instead"
    if entry.mode not in _FILE_MODES:
        return "E408", f"has mode {entry.mode}; only plain files (100644, 100755) can be pushed"
    return None


def _path_complaint(path: str) -> tuple[str, str] | None:
    if names.escapes(path):
        return "E402", "leads out of its folder on some systems; leave out '..', '\\' and '//'"
    if names.means_dot_git(path):
        return "E403", "means '.git' on some file systems; give it another name"
    if not names.is_plain(path):
        return "E404", "has characters that cannot be shown; name it in printable UTF-8"
    if names.is_too_long(path):
        most = f"{names.MOST_COMPONENT_BYTES} bytes a name, {names.MOST_PATH_BYTES} a path"
        return "E405", f"is too long; keep to {most}"
    if names.ends_badly(path):
        return "E407", "has a name that ends in a dot or space; rename it"
    return None


def _collisions(entries: Sequence[TreeEntry]) -> Iterator[Finding]:
    """Names that are the same file or folder where case or Unicode form does not count."""
    paths: dict[str, str] = {}
    for entry in entries:
        parts = entry.path.split("/")
        for depth in range(1, min(len(parts), 100) + 1):
            path = "/".join(parts[:depth])
            first = paths.setdefault(normalize("NFC", path).casefold(), path)
            if first != path:
                twin = f"differs from '{plain_text(first)}' only in case or Unicode form"
                yield _finding(entry.path, "E406", f"{twin}; rename one of them")
                break


def _ref_findings(
    updates: Sequence[RefUpdate],
    protected: Collection[str],
    forced: Collection[str],
    most_updates: int,
) -> Iterator[Finding]:
    if len(updates) > most_updates:
        count = f"the push moves {len(updates)} refs, of {most_updates} allowed at once"
        yield _finding("", "E423", f"{count}; push fewer branches and tags at a time")
        return
    for update in updates:
        if problem := names.ref_problem(update.ref):
            yield _finding(update.ref, "E420", f"cannot be pushed: {problem}")
        elif is_protected(update.ref, protected):
            yield from _protected_findings(update, forced)


def _protected_findings(update: RefUpdate, forced: Collection[str]) -> Iterator[Finding]:
    if names.is_null(update.new):
        remedy = "take it off the protected branches first, or push a commit that undoes it"
        yield _finding(update.ref, "E421", f"is protected and cannot be deleted; {remedy}")
    elif update.ref in forced:
        yield _finding(update.ref, "E422", f"is protected and {_moves(update.ref)}")


def _moves(ref: str) -> str:
    if ref.startswith("refs/tags/"):
        return "never moves; give the new commit a tag of another name"
    return "only moves forward; pull and merge first, or revert with a new commit"


def _finding(path: str, code: str, message: str) -> Finding:
    return Finding(Path(plain_text(path, 1000) or "."), 0, 0, code, message)
