"""The names of contents: a digest for a model's folder and one for each of its versions. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from repository.snapshots.errors import BadEntry

LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 4096

_DIGEST = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """One file: its path relative to the folder spoken of, with '/'; `sha256` in hex."""

    path: str
    size_bytes: int
    sha256: str


def is_digest(text: str) -> bool:
    """Whether `text` can be the name of a snapshot."""
    return _DIGEST.fullmatch(text) is not None


def digest(files: Iterable[FileEntry]) -> str:
    """The sha256, in hex, over the sorted lines of (path, size, sha256) of all files."""
    lines = (f"{file.path}\0{file.size_bytes}\0{file.sha256}\n" for file in sorted(files))
    return sha256("".join(lines).encode()).hexdigest()


def model_digest(model: str, files: Iterable[FileEntry]) -> str:
    """The digest of a model's folder, paths relative to that.

    The model's name counts: two models of one content are two snapshots.
    """
    return digest(_moved(files, f"{model}/"))


def versions(files: Iterable[FileEntry]) -> Mapping[int, tuple[FileEntry, ...]]:
    """Per version number the files below its folder, their paths relative to that, sorted.

    Take `digest` of each; it is the same for one content under two numbers.
    """
    found: dict[int, list[FileEntry]] = {}
    for file in sorted(files):
        top, slash, path = file.path.partition("/")
        if slash and _VERSION.fullmatch(top):
            found.setdefault(int(top), []).append(FileEntry(path, file.size_bytes, file.sha256))
    return {number: tuple(found[number]) for number in sorted(found)}


def check_path(path: str) -> None:
    """Raises `BadEntry` for a path that leaves the folder or that some machine cannot store."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError as error:
        raise BadEntry(f"file {path!r} has no UTF-8 name; rename it") from error
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or not path.isprintable():
        raise BadEntry(f"file {path!r} leaves the model's folder; give a path in it, such as '1/a'")
    longest = max(len(part.encode()) for part in parts)
    if len(encoded) > LONGEST_PATH_BYTES or longest > LONGEST_NAME_BYTES:
        limits = f"{LONGEST_NAME_BYTES} bytes in a name and {LONGEST_PATH_BYTES} in a path"
        raise BadEntry(f"file '{path[:80]}…' has too long a path; at most {limits} are taken")


def check_model(model: str) -> None:
    """Raises `BadEntry` for a model's name that cannot be a folder that is scanned."""
    check_path(model)
    if "/" in model or model.startswith(".") or model.endswith("~") or model == "__pycache__":
        raise BadEntry(f"model {model!r} cannot be a folder's name; rename the model")


def _moved(files: Iterable[FileEntry], prefix: str) -> Iterable[FileEntry]:
    return (FileEntry(prefix + file.path, file.size_bytes, file.sha256) for file in files)
