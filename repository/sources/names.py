"""Names of files that come from elsewhere: which are refused before they touch a disk. Pure."""

from collections.abc import Iterable

LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 1024
PART = ".part"
"""Suffix of a file that has not arrived whole."""
JOURNAL = ".fetch.jsonl"
UNPACKING = ".unpacking"


def why_unsafe(path: str) -> str | None:
    """Why this relative path is refused, or None; accepted are plain names joined by '/'."""
    if not path.isprintable() or "\\" in path:
        return "has a control character or a backslash"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if path.startswith("/"):
        return "is an absolute path"
    if size > LONGEST_PATH_BYTES:
        return f"is longer than {LONGEST_PATH_BYTES} bytes"
    return next((why for part in path.split("/") if (why := _why_bad_part(part))), None)


def why_reserved(path: str) -> str | None:
    """Why this path would be taken for one of a fetch's own files, or None."""
    if path.endswith(PART):
        return f"ends in '{PART}', which marks files that have not arrived whole; rename it"
    if path.partition("/")[0] in (JOURNAL, f"{JOURNAL}.new", UNPACKING):
        return "has a name that the staging folder needs for itself; rename it"
    return None


def why_clashing(paths: Iterable[str]) -> str | None:
    """Why these files cannot lie in one folder: one twice, or one where another's folder is."""
    files: set[str] = set()
    for path in paths:
        if path in files:
            return f"'{path}' is there twice"
        files.add(path)
    for path in files:
        above = path.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            folder = "/".join(above[:depth])
            if folder in files:
                return f"'{folder}' is a file and a folder of '{path}'"
    return None


def shown(path: str) -> str:
    """A refused name, fit for a message: short and without control characters."""
    return ascii(path[:200])


def _why_bad_part(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"has the part '{part}'"
    if len(part.encode()) > LONGEST_NAME_BYTES:
        return f"has a name longer than {LONGEST_NAME_BYTES} bytes"
    return None
