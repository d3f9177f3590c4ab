"""Which files of a model a git repository or an import takes: by name, and by what they hold.

A file passes when its ending belongs to a format that is allowed *and* its content is what that
format has, or belongs to another one that is allowed. So a library called `ops.txt` is a library.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from control.repository_settings import FORMATS, HIDDEN_ALLOWED, RISKY_FORMATS, formats_of
from repository.files.array_archives import holds_arrays
from repository.files.contents import HEAD_BYTES, Content, content_of
from repository.files.durable import open_file
from repository.findings import Finding
from repository.snapshots.digest import FileEntry

_INERT = frozenset((Content.EMPTY, Content.TEXT, Content.DATA))
_PLAIN = frozenset((Content.EMPTY, Content.TEXT))
_ANY_WEIGHTS = frozenset(Content) - {Content.NATIVE, Content.BYTECODE}
_HOLDS: dict[str, frozenset[Content]] = {
    "onnx": _INERT | {Content.SAFETENSORS},
    "safetensors": frozenset((Content.EMPTY, Content.SAFETENSORS)),
    "torch_exported": frozenset((Content.EMPTY, Content.ZIP)),
    "openvino": _INERT,
    "litert": _INERT,
    "ncnn": _INERT,
    "mnn": _INERT,
    "booster": _INERT,
    "config": _PLAIN,
    "labels": _PLAIN,
    "text": _PLAIN,
    "arrays": frozenset((Content.EMPTY, Content.ZIP)),
    "torch": _ANY_WEIGHTS,
    "torchscript": _INERT | {Content.ZIP},
    "pickle": _ANY_WEIGHTS,
    "python": _PLAIN,
    "native_library": _INERT | {Content.NATIVE},
    "python_environment": _INERT | {Content.COMPRESSED},
}
"""Format → what its files may hold."""

_CARRIED = {
    Content.NATIVE: ("native_library",),
    Content.PICKLE: ("pickle", "torch"),
    Content.BYTECODE: ("python",),
    Content.ZIP: ("torchscript", "torch", "pickle"),
}
"""Content → the formats whose permission lets it pass under any name that is taken."""


NO_ARRAYS = "holds other things than arrays; write it with numpy.savez or numpy.savez_compressed"

_SAFE = {"onnx": "ONNX", "safetensors": "safetensors", "torch_exported": ".pt2"}
"""What a model can be exported as, by the format that takes it."""


def allowing(repository: str, format: str) -> str:
    """The advice how `format` comes to be allowed; `repository` is "" for an import."""
    if not repository:
        return f"push it with git to a repository that allows {format}: imports take no code"
    return (
        f"ask an administrator to allow {format} "
        f"(modelyard repo change {repository} --add-format {format})"
    )


def file_findings(
    folder: Path,
    files: Iterable[FileEntry],
    allowed: Collection[str],
    shown: Path,
    repository: str,
) -> Iterator[Finding]:
    """What is wrong with the `files` below `folder`, which their owner knows as `shown`, for a
    `repository` that takes the formats `allowed`; "" for an import.

    Reads the beginning of each; raises OSError.
    """
    for file in files:
        complaint = (
            _of_hidden(file.path)
            or _of_name(file.path, allowed, repository)
            or _of_content(folder / file.path, file, allowed, repository)
        )
        if complaint:
            yield Finding(shown / file.path, 0, 0, *complaint)


def _of_hidden(path: str) -> tuple[str, str] | None:
    *folders, name = PurePosixPath(path).parts
    hidden = [part for part in (*folders, name) if part.startswith(".")]
    if not hidden or (hidden == [name] and name in HIDDEN_ALLOWED):
        return None
    names = ", ".join(sorted(HIDDEN_ALLOWED))
    return "E409", f"is hidden, and a model's hidden files are never read; remove it ({names} pass)"


def _of_name(path: str, allowed: Collection[str], repository: str) -> tuple[str, str] | None:
    name = PurePosixPath(path).name
    kinds = formats_of(name)
    if name in HIDDEN_ALLOWED or any(kind in allowed for kind in kinds):
        return None
    if kinds:
        carries = "can carry code and " if set(kinds).intersection(RISKY_FORMATS) else ""
        safe = [name for kind, name in _SAFE.items() if kind in allowed]
        export = f"export it as {' or '.join(safe)}, or " if safe else ""
        return "E440", (
            f"is of format {' or '.join(kinds)}, which {carries}is not allowed in this repository; "
            f"{export}{allowing(repository, kinds[0])}"
        )
    taken = ", ".join(sorted({end for kind in allowed for end in FORMATS[kind]}))
    return "E440", f"is of no format this repository takes; it takes {taken}"


def _of_content(
    place: Path, file: FileEntry, allowed: Collection[str], repository: str
) -> tuple[str, str] | None:
    with open(open_file(place), "rb") as opened:
        content = content_of(opened.read(HEAD_BYTES), file.size_bytes)
        if content is Content.ZIP and formats_of(file.path) == ("arrays",):
            return None if holds_arrays(opened) else ("E440", NO_ARRAYS)
    kinds = [kind for kind in formats_of(file.path) if kind in allowed] or ["text"]
    if any(content in _HOLDS[kind] for kind in kinds):
        return None
    carried = _CARRIED.get(content, ())
    if any(kind in allowed for kind in carried):
        return None
    reason = f"holds {content}, whatever it is called"
    risky = [kind for kind in carried if kind in RISKY_FORMATS]
    if not risky:
        return "E440", f"{reason}; files of its name hold {_meant(kinds)}"
    return "E440", (
        f"{reason}, which can carry code and is not allowed in this repository; remove it, or "
        f"{allowing(repository, risky[0])}"
    )


def _meant(kinds: Iterable[str]) -> str:
    held = {content for kind in kinds for content in _HOLDS[kind]} - {Content.EMPTY}
    return " or ".join(sorted(held))
