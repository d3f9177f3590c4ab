"""What is wrong with the profiles that lie in a model's folder, with line and column. Blocks."""

import re
from collections.abc import Iterator
from pathlib import Path

from control.drift.profile import FILE, LARGEST_BYTES, BadProfile, read_profile
from control.json_positions import line_and_column, offset_of
from repository.files.plain_files import open_plain
from repository.findings import Finding

CODE = "E302"

_BYTE = re.compile(r"\(byte (\d+)\)")


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
        at = offset_of(text, error.path)
    elif len(raw) > LARGEST_BYTES:
        return 0, 0
    else:  # it ends too soon
        at = len(text.rstrip())
    return line_and_column(text, at)
