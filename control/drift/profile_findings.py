"""What is wrong with the profiles that lie in a model's folder, with line and column. Blocks."""

import re
from collections.abc import Iterator
from contextlib import suppress
from json import JSONDecoder
from pathlib import Path

from control.drift.profile import FILE, LARGEST_BYTES, BadProfile, read_profile
from repository.files.plain_files import open_plain
from repository.findings import Finding

CODE = "E302"

_BYTE = re.compile(r"\(byte (\d+)\)")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_BLANK = re.compile(r"[ \t\r\n]*")
_decoder = JSONDecoder()


def profile_findings(folder: Path) -> list[Finding]:
    """Of the model's own profile, and of those of its versions."""
    files = [folder / FILE, *sorted(folder.glob(f"*/{FILE}"))]
    return [found for file in files for found in _of(file)]


def _of(file: Path) -> Iterator[Finding]:
    try:
        with open(open_plain(file), "rb") as opened:
            raw = opened.read(LARGEST_BYTES + 1)
        read_profile(raw)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding(file, 0, 0, CODE, f"cannot be read: {error.strerror or error}")
    except BadProfile as error:
        yield Finding(file, *position(raw, error), CODE, str(error))


def position(raw: bytes, error: BadProfile) -> tuple[int, int]:
    """Line and column, from 1, of what `error` is about; zeros where that cannot be said."""
    text = raw.decode("utf-8", "replace")
    if found := _BYTE.search(str(error)):
        at = len(raw[: int(found[1])].decode("utf-8", "replace"))
    elif error.path:
        at = _offset(text, error.path)
    elif len(raw) > LARGEST_BYTES:
        return 0, 0
    else:  # it ends too soon
        at = len(text.rstrip())
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _offset(text: str, path: str) -> int:
    """Where the value at `path` ("$.features[2].name") begins, or the last on the way to it that is
    there. The text is JSON."""
    at = _skip(text, 0)
    for name, number in _STEP.findall(path):
        with suppress(LookupError, ValueError):
            at = _element(text, at, int(number)) if number else _member(text, at, name)
            continue
        break
    return at


def _member(text: str, at: int, wanted: str) -> int:
    at = _skip(text, at + 1)
    while text[at] == '"':
        name, at = _decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if name == wanted:
            return at
        at = _after(text, at)
    raise LookupError(wanted)


def _element(text: str, at: int, wanted: int) -> int:
    at = _skip(text, at + 1)
    for _ in range(wanted):
        at = _after(text, at)
    return at


def _after(text: str, at: int) -> int:
    """Where what follows the value and its comma begins."""
    _, at = _decoder.raw_decode(text, at)
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()
