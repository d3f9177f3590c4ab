"""Git LFS pointers: the few lines that stand in git for a large file. Pure."""

import re
from dataclasses import dataclass

from repository.lfs.errors import BadPointer

VERSION = "https://git-lfs.github.com/spec/v1"
LARGEST_BYTES = 1023
"""A pointer is shorter than 1,024 bytes; anything longer is a file of its own."""

LARGEST_SIZE_BYTES = (1 << 63) - 1
_OID = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"[a-z0-9.-]+")
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_FIRST_LINE = f"version {VERSION}".encode()


@dataclass(frozen=True, slots=True)
class Pointer:
    """A large file: `oid` is its sha256 in 64 lower-case hex digits, `size_bytes` its length."""

    oid: str
    size_bytes: int


def is_oid(text: str) -> bool:
    """Whether `text` is an object's id: a sha256 in lower-case hex."""
    return _OID.fullmatch(text) is not None


def write(pointer: Pointer) -> bytes:
    """The pointer's text, as git-lfs itself writes it."""
    lines = (f"version {VERSION}", f"oid sha256:{pointer.oid}", f"size {pointer.size_bytes}")
    return "".join(f"{line}\n" for line in lines).encode()


def parse(content: bytes) -> Pointer | None:
    """The pointer that a file's content is, or None for any other file.

    A file counts as meant for a pointer when its first line is the version's; raises `BadPointer`
    for one that then goes wrong. Lines of extensions are skipped.
    """
    if not content.startswith(_FIRST_LINE) or len(content) > LARGEST_BYTES:
        return None
    if content[len(_FIRST_LINE) :][:1] not in (b"\n", b"\r", b""):
        return None
    fields = _fields(content)
    oid, size = fields.get("oid", ""), fields.get("size", "")
    if not (oid.startswith("sha256:") and is_oid(oid.removeprefix("sha256:"))):
        raise BadPointer(f"LFS pointer has oid {oid!r}; 'sha256:' and 64 hex digits expected")
    if not _SIZE.fullmatch(size) or int(size) > LARGEST_SIZE_BYTES:
        raise BadPointer(f"LFS pointer has size {size!r}; expected a number of bytes")
    return Pointer(oid.removeprefix("sha256:"), int(size))


def _fields(content: bytes) -> dict[str, str]:
    """What stands behind each key below the version; raises `BadPointer`."""
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise BadPointer("LFS pointer is not UTF-8; write it with 'git lfs pointer'") from error
    if lines.pop() != "":
        raise BadPointer("LFS pointer does not end with a newline; was it cut?")
    pairs = [line.partition(" ") for line in lines[1:]]
    for number, (key, blank, _) in enumerate(pairs, start=2):
        if not (blank and _KEY.fullmatch(key)) or "\r" in lines[number - 1]:
            shown = repr(lines[number - 1][:80])
            raise BadPointer(f"LFS pointer line {number} is {shown}; expected 'key value'")
    keys = [key for key, _, _ in pairs]
    if keys != sorted(set(keys)):
        raise BadPointer(f"LFS pointer keys are {', '.join(keys)}; expected each once, sorted")
    return {key: value for key, _, value in pairs}
