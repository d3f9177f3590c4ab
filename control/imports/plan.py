"""Which files a model's next snapshot has: those that were fetched, and those it keeps. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from control.repository_settings import FORMATS, formats_of
from repository.folders.walk import hidden
from repository.snapshots.digest import FileEntry
from repository.sources.errors import BadLayout
from repository.sources.layout import SourceKind, SourceLayout, layout

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """`placed`: path below the model's folder → path below the staging folder. `kept`: files of
    the snapshot before. `brought`: the versions that were fetched."""

    placed: dict[str, str]
    kept: tuple[FileEntry, ...]
    brought: tuple[int, ...]


def plan(
    fetched: Collection[str],
    version: int | None,
    previous: Sequence[FileEntry],
    highest: int,
    formats: Collection[str],
) -> SnapshotPlan:
    """Put what was fetched beside what there is; raises `BadLayout`.

    `version` is the one asked for, `highest` the highest that the model ever had. Files of one
    version become `version`, or else the next one. Of a model's folder all versions are taken, or
    `version` alone.
    """
    found = layout(fetched, None, version or highest + 1)
    brought = _brought(found, version)
    placed = {target: path for path, target in found.places.items() if _is_wanted(target, brought)}
    if found.shape is SourceKind.CHECKPOINT:
        # A hub holds the same weights for many frameworks, and pictures of them.
        placed = {new: old for new, old in placed.items() if _is_taken(old, formats)}
    _refuse_formats(placed.values(), formats)
    tops = {str(number) for number in brought}
    kept = tuple(
        file
        for file in previous
        if file.path not in placed and file.path.partition("/")[0] not in tops
    )
    return SnapshotPlan(placed, kept, brought)


def _brought(found: SourceLayout, version: int | None) -> tuple[int, ...]:
    if not found.versions:
        raise BadLayout("a model folder without a version: found no folder '1/', '2/'")
    if version is None or found.shape is not SourceKind.MODEL:
        return found.versions
    if version not in found.versions:
        there = ", ".join(map(str, found.versions))
        raise BadLayout(f"a model folder without version {version}; it has {there}")
    return (version,)


def _is_wanted(path: str, brought: Collection[int]) -> bool:
    top, slash, _ = path.partition("/")
    return not (slash and top.isdecimal() and top[0] != "0" and int(top) not in brought)


def _is_taken(path: str, formats: Collection[str]) -> bool:
    parts = path.split("/")
    return not any(map(hidden, parts)) and any(kind in formats for kind in formats_of(parts[-1]))


def _refuse_formats(paths: Collection[str], formats: Collection[str]) -> None:
    refused = [
        path
        for path in sorted(paths)
        if not path.rpartition("/")[2].startswith(".") and not _is_taken(path, formats)
    ]
    if not refused:
        return
    names = ", ".join(f"'{path}'" for path in refused[:_MOST_NAMED])
    more = f" and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
    taken = ", ".join(sorted({end for kind in formats for end in FORMATS[kind]}))
    raise BadLayout(
        f"{names}{more} cannot be imported: what is fetched from a URL may not carry code, so "
        f"these files are taken: {taken}; push the model to a git repository that allows others"
    )
