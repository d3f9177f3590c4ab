"""What lies in a pushed tree: its entries, and which models and versions they make. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from repository.folders.walk import CONFIG_NAME, hidden

MODELS = "models"
"""The folder that holds the models of a repository which has other things in it, too."""

_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One file of a commit, or a submodule, which has kind "commit" and size 0.

    `mode` is git's, as six octal digits. `path` is relative to the tree, with slashes; bytes of it
    that are not UTF-8 are surrogates, as in `os.fsdecode`.
    """

    mode: str
    kind: str
    oid: str
    size_bytes: int
    path: str


def models_in(entries: Iterable[TreeEntry]) -> dict[str, list[TreeEntry]]:
    """Per model its entries: folders below `models/`, else top folders that look like a model.

    A folder looks like a model when it has a config.pbtxt or a version folder. Everything else
    (README, .gitattributes, hidden folders) belongs to nobody.
    """
    entries = list(entries)
    prefix = prefix_of(entries)
    found: dict[str, list[TreeEntry]] = {}
    for entry in entries:
        name, slash, _ = entry.path.removeprefix(prefix).partition("/")
        if entry.path.startswith(prefix) and slash and not hidden(name):
            found.setdefault(name, []).append(entry)
    if prefix:
        return found
    return {name: below for name, below in found.items() if _is_model(name, below)}


def prefix_of(entries: Iterable[TreeEntry]) -> str:
    """What stands before every model's name in its paths: "models/" or nothing."""
    prefix = f"{MODELS}/"
    return prefix if any(entry.path.startswith(prefix) for entry in entries) else ""


def touched(old: Iterable[TreeEntry], new: Iterable[TreeEntry]) -> tuple[str, ...]:
    """The models that differ between two trees, those added and removed included, sorted."""
    before, after = _by_path(old), _by_path(new)
    names = before.keys() | after.keys()
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))


def changed_versions(
    old: Iterable[TreeEntry], new: Iterable[TreeEntry]
) -> dict[str, tuple[int, ...]]:
    """Per model the version numbers that stand in both trees with different bytes.

    A Git LFS file counts by its pointer, which names the content's hash.
    """
    before, after = _by_path(old), _by_path(new)
    changed: dict[str, tuple[int, ...]] = {}
    for name in sorted(before.keys() & after.keys()):
        was, now = versions_of(before[name]), versions_of(after[name])
        numbers = sorted(n for n in was.keys() & now.keys() if was[n] != now[n])
        if numbers:
            changed[name] = tuple(numbers)
    return changed


def versions_of(files: Mapping[str, str]) -> dict[int, dict[str, str]]:
    """Per version number its files, of a model's files as path to oid, both relative."""
    found: dict[int, dict[str, str]] = {}
    for path, oid in files.items():
        number, slash, rest = path.partition("/")
        if slash and _VERSION.fullmatch(number):
            found.setdefault(int(number), {})[rest] = oid
    return found


def _by_path(entries: Iterable[TreeEntry]) -> dict[str, dict[str, str]]:
    """Per model its files, as path within the model to oid; where models lie plays no role."""
    entries = list(entries)
    prefix = prefix_of(entries)
    return {
        name: {entry.path.removeprefix(f"{prefix}{name}/"): entry.oid for entry in below}
        for name, below in models_in(entries).items()
    }


def _is_model(name: str, entries: Sequence[TreeEntry]) -> bool:
    below = (entry.path.removeprefix(f"{name}/") for entry in entries)
    return any(_marks_a_model(path) for path in below)


def _marks_a_model(path: str) -> bool:
    first, slash, _ = path.partition("/")
    return path == CONFIG_NAME or bool(slash and _VERSION.fullmatch(first))
