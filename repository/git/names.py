"""Which names of repositories, refs, keys and files we let near git and a disk. Pure.

Each function returns what is wrong with a name in a few words, or "" when nothing is.
"""

import re

MOST_PATH_BYTES = 4096
MOST_COMPONENT_BYTES = 255
MOST_REF_BYTES = 250

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FORBIDDEN_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
# Characters that HFS+ leaves out when it compares names.
_HFS_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
# What NTFS makes of ".git": its short name, trailing dots and spaces, and streams.
_NTFS_GIT = re.compile(r"(?:\.git|git~[0-9]+)[ .]*(?::.*)?", re.IGNORECASE)


def is_oid(text: str) -> bool:
    """Whether it is a whole object id, of SHA-1 or SHA-256, in lower case."""
    return _OID.fullmatch(text) is not None


def is_null(oid: str) -> bool:
    """Whether it is git's "no object": a push's old value of a new ref, or the new of a deleted."""
    return oid.strip("0") == ""


def repository_problem(name: str) -> str:
    if not _REPOSITORY.fullmatch(name):
        return "use 1 to 100 of a-z, 0-9, '.', '_' and '-', with a letter or digit first"
    if name.endswith((".git", ".lock")) or ".." in name:
        return "leave out '..' and an ending '.git' or '.lock'"
    return ""


def key_problem(key: str) -> str:
    return "" if _KEY.fullmatch(key) else "use 1 to 100 of A-Z, a-z, 0-9, '_' and '-'"


def ref_problem(ref: str) -> str:
    """Held against `git check-ref-format`, and narrower: see `_REFS` and `_component_problem`."""
    if not ref.startswith(("refs/heads/", "refs/tags/")):
        return "only refs/heads/… and refs/tags/… can be pushed"
    name = ref.split("/", 2)[2]
    if len(ref.encode(errors="surrogateescape")) > MOST_REF_BYTES:
        return f"names end at {MOST_REF_BYTES} bytes"
    if not name.isprintable() or _FORBIDDEN_IN_REF.search(name):
        return "leave out spaces, control characters, '..', '//', '@{' and any of ~^:?*[\\"
    if name in ("HEAD", "@") or is_oid(name):
        return "a branch or tag is not named HEAD, @ or like an object id"
    return next(filter(None, map(_ref_component_problem, name.split("/"))), "")


def _ref_component_problem(part: str) -> str:
    if not part:
        return "no part of it may be empty"
    if part.startswith(("-", ".")):
        return "no part of it may begin with '-' or '.'"
    if part.endswith((".", ".lock")):
        return "no part of it may end in '.' or '.lock'"
    return ""


def escapes(path: str) -> bool:
    """Whether a path of a tree leads out of it, on any system: absolute, `..`, backslash."""
    return "\\" in path or any(part in ("", ".", "..") for part in path.split("/"))


def means_dot_git(path: str) -> bool:
    """Whether a part of it is `.git` to HFS+, NTFS or a file system that ignores case."""
    return any(_NTFS_GIT.fullmatch(_HFS_IGNORED.sub("", part)) for part in path.split("/"))


def is_plain(path: str) -> bool:
    """Whether it is UTF-8 without control characters and without ones that change direction."""
    return path.isprintable()


def is_too_long(path: str) -> bool:
    content = path.encode(errors="surrogateescape")
    return len(content) > MOST_PATH_BYTES or any(
        len(part) > MOST_COMPONENT_BYTES for part in content.split(b"/")
    )


def ends_badly(path: str) -> bool:
    """Whether a part of it ends in a dot or space, which Windows drops."""
    return any(part.endswith((".", " ")) for part in path.split("/"))
