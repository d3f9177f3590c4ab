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
LONGEST_LINE, LONGEST_REQUIREMENT = 32 << 10, 1000
"""Characters, with hashes and without."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_EXTRAS = rf"\[ ?{_NAME}(?: ?, ?{_NAME})* ?\]"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>) ?[A-Za-z0-9.*+!_][A-Za-z0-9.*+!_-]{0,99}"
_VERSIONS = rf"{_VERSION}(?: ?, ?{_VERSION})*"
_PACKAGE = re.compile(
    rf"(?P<name>{_NAME})(?: ?{_EXTRAS})?(?: ?(?P<versions>{_VERSIONS}|\( ?{_VERSIONS} ?\)))?"
)
_HASH = re.compile(r"sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})")
_OPTION = "--hash"

# Markers as in PEP 508, with no blanks or brackets inside of what is quoted.
_VARIABLE = (
    "python_version|python_full_version|os_name|sys_platform|platform_release|platform_system|"
    "platform_version|platform_machine|platform_python_implementation|implementation_name|"
    "implementation_version|extra"
)
_OPERAND = rf"""(?:{_VARIABLE}|'[A-Za-z0-9._+*!~-]{{0,100}}'|"[A-Za-z0-9._+*!~-]{{0,100}}")"""
_OPERATOR = r"(?: ?(?:===|==|~=|!=|<=|>=|<|>) ?| (?:not )?in )"
_COMPARISON = re.compile(rf" ?{_OPERAND}{_OPERATOR}{_OPERAND} ?")
_OPENED, _CLOSED = re.compile(r" ?\("), re.compile(r" ?\) ?")
_JOINED = re.compile(r"(?:and|or)(?= |\()")
_DEEPEST = 10
"""Parentheses inside each other: pip reads them by recursion."""

_COMMENT = re.compile(r"(?:^|\s)#.*$")
_FILE = re.compile(
    r"\.(?:whl|zip|tar|tar\.gz|tgz|tar\.bz2|tbz|tar\.xz|txz|tlz|tar\.lz|tar\.lzma)$", re.IGNORECASE
)


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
    """The requirement with single blanks, as pip is given it."""
    if len(line) > LONGEST_LINE:
        raise BadRequirements(
            number, f"has {len(line)} characters, hashes included; at most {LONGEST_LINE} are read"
        )
    words = line.split()
    kept = _without_hashes(words)
    requirement = " ".join(words[:kept])
    if len(requirement) > LONGEST_REQUIREMENT:
        raise BadRequirements(
            number,
            f"has {len(requirement)} characters besides hashes; at most {LONGEST_REQUIREMENT} "
            "are read",
        )
    if not any(word.startswith("-") for word in words[:kept]) and _is_requirement(requirement):
        return " ".join(words)
    raise BadRequirements(number, f"is '{line:.200}': {_complaint(line)}")


def _without_hashes(words: list[str]) -> int:
    """How many of a line's words come before the hashes at its end."""
    count = len(words)
    while count > 1:
        option, _, value = words[count - 1].partition("=")
        if option == _OPTION and _HASH.fullmatch(value):
            count -= 1
        elif count > 2 and words[count - 2] == _OPTION and _HASH.fullmatch(words[count - 1]):
            count -= 2
        else:
            break
    return count


def _is_requirement(text: str) -> bool:
    package, semicolon, marker = text.partition(";")
    package = package.rstrip()
    found = _PACKAGE.fullmatch(package)
    if found is None or _FILE.search(found["name"]) or _FILE.search(found["versions"] or ""):
        return False
    return not semicolon or _is_marker(marker)


def _is_marker(text: str) -> bool:
    """Whether all of it is comparisons, joined by and, or, and parentheses."""
    at = depth = 0
    while True:
        while found := _OPENED.match(text, at):
            at, depth = found.end(), depth + 1
        found = _COMPARISON.match(text, at)
        if found is None or depth > _DEEPEST:
            return False
        at = found.end()
        while depth and (found := _CLOSED.match(text, at)):
            at, depth = found.end(), depth - 1
        if at == len(text):
            return not depth
        found = _JOINED.match(text, at)
        if found is None:
            return False
        at = found.end()


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
    if " -" in line:
        return "options are not taken, but for --hash=sha256:DIGEST at the end of a requirement"
    return "that is no requirement; write a name and a version, as in numpy==2.3.1"


def requirements_digest(requirements: Iterable[str], python: str, sources: Iterable[str]) -> str:
    """The name of the environment that has these: `python` is the version and platform it is made
    for, `sources` where its packages come from."""
    text = "\n".join([python, *sorted(set(requirements)), "", *sources])
    return hashlib.sha256(text.encode()).hexdigest()
