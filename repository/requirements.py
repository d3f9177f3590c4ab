"""Read a model's `requirements.txt`: names and versions of packages, and nothing that pip would do
besides. Pure.

What it takes is a part of pip's format: one requirement a line, with extras, versions, a marker and
hashes. Options, addresses, paths and other files are refused: who writes the file does not decide
where packages come from.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

FILE = "requirements.txt"
MOST_BYTES, MOST_REQUIREMENTS = 256 << 10, 1000
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]{1,100}"
_MARKER = r"""[A-Za-z0-9_.'"<>=!~()\s-]{1,500}"""
_HASH = r"--hash[= ]sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})"
_REQUIREMENT = re.compile(
    rf"(?P<name>{_NAME})\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?"
    rf"\s*\(?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?\s*\)?\s*(?:;{_MARKER})?(?:\s+{_HASH})*",
    re.ASCII,
)
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_FILE = re.compile(r"\.(?:whl|zip|tar|tar\.gz|tgz|tar\.bz2|tar\.xz)$", re.IGNORECASE)


class BadRequirements(Exception):
    """Why the file is not read: what is wrong with it, and what would be taken; `line` counts from
    1, 0 for the whole file."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line} {text}" if line else text)
        self.line = line
        self.text = text


def read_requirements(content: bytes) -> tuple[str, ...]:
    """The requirements, one line each, as pip reads them. Raises BadRequirements."""
    if len(content) > MOST_BYTES:
        raise BadRequirements(0, f"has {len(content)} bytes; at most {MOST_BYTES} are read")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadRequirements(0, f"is not UTF-8 at byte {error.start}") from None
    found = tuple(_checked(number, line) for number, line in _lines(text))
    if len(found) > MOST_REQUIREMENTS:
        raise BadRequirements(0, f"has {len(found)} requirements, more than {MOST_REQUIREMENTS}")
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """What stands on each line, comments left out and continued ones joined, with its number."""
    held, began = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        began = began or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        whole, at = _COMMENT.sub("", held + line).strip(), began
        held, began = "", 0
        if whole:
            yield at, whole
    if whole := _COMMENT.sub("", held).strip():
        yield began, whole


def _checked(number: int, line: str) -> str:
    if _REQUIREMENT.fullmatch(line) is not None and not _FILE.search(line.split()[0]):
        return " ".join(line.split())
    raise BadRequirements(number, f"is '{line:.200}': {_complaint(line)}")


def _complaint(line: str) -> str:
    if line.startswith(("-e", "--editable")):
        return "an editable package is source code; name its package and version"
    if line.startswith("-"):
        return (
            "options are not taken; the server's --environment-index and --environment-wheel-dir "
            "say where packages come from"
        )
    if "://" in line or " @ " in f" {line} " or line.startswith("git+"):
        return "addresses are not taken; name the package and its version, as in numpy==2.3.1"
    if line.startswith((".", "/", "~")) or "/" in line or "\\" in line or _FILE.search(line):
        return "files and folders are not taken; name the package and its version"
    return "that is no requirement; write a name and a version, as in numpy==2.3.1"


def requirements_digest(requirements: Iterable[str], python: str, sources: Iterable[str]) -> str:
    """The name of the environment that has these: `python` is the version and platform it is made
    for, `sources` where its packages come from."""
    text = "\n".join([python, *sorted(set(requirements)), "", *sources])
    return hashlib.sha256(text.encode()).hexdigest()
