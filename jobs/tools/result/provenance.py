"""Where a result comes from: digests of the files read, versions of the packages used."""

import hashlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import msgspec

from control.jobs.messages import Task

_CHUNK = 1 << 20


MOST_LISTED = 300
"""Files whose digests are listed; a report must fit into one message."""


def digests(task: Task) -> dict[str, str]:
    """sha256 of each file of the source and of the data, by "source/NAME" and "data/NAME".

    Of more than MOST_LISTED files, one digest: that of lines "DIGEST  NAME" in the order of names,
    as sha256sum writes them.
    """
    found = _digests("source", Path(task.source))
    return found | _digests("data", Path(task.data)) if task.data else found


def _digests(whose: str, place: Path) -> dict[str, str]:
    found = {name: _sha256(path) for name, path in _files(place)}
    if len(found) <= MOST_LISTED:
        return {f"{whose}/{name}": one for name, one in found.items()}
    lines = "".join(f"{one}  {name}\n" for name, one in sorted(found.items()))
    whole = hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
    return {f"{whose} ({len(found):,} files)": whole}


def versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of the installed packages among these."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def spec_fields(task: Task) -> dict[str, object]:
    """The spec with every default filled in, as plain values."""
    fields: dict[str, object] = msgspec.to_builtins(task.spec)
    return fields


def _files(place: Path) -> list[tuple[str, Path]]:
    if place.is_file():
        return [(place.name, place)]
    return [
        (str(path.relative_to(place)), path) for path in sorted(place.rglob("*")) if path.is_file()
    ]


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()
