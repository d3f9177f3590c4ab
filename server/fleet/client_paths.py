"""Reasons as clients may see them: without the folders that this server keeps things in."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from server.settings.table import Settings

_ROOT = Path(__file__).resolve().parents[2]


_OURS = r"overrides/[^/\s]+/[^/\s]+/|(?:store/)?snapshots/[0-9a-f]+/"
"""Where the state folder and the store have models of which only the name means anything."""


def client_paths(settings: Settings) -> "ClientPaths":
    """For this server's own folders."""
    own = (*settings.model_repository, settings.state_dir, settings.store_folder, _ROOT)
    written = (form for one in own for form in (one, one.absolute(), one.resolve()))
    return ClientPaths((*written, Path(sys.prefix), Path(sys.base_prefix)))


class ClientPaths:
    """Takes the beginning of every path below one of `folders` out of a text, so that what is left
    begins with the model's name, say."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """`folders` in every way they may be written; "." and "/" are left alone."""
        roots = {str(folder).rstrip("/") for folder in folders} - {"", ".", ".."}
        ordered = sorted(roots, key=len, reverse=True)
        either = "|".join(map(re.escape, ordered))
        inside = rf"(?:{_OURS})?"
        self._below = re.compile(rf"(?<![\w./-])(?:{either})/+{inside}" if ordered else r"(?!)")
        self._itself = re.compile(rf"(?<![\w./-])(?:{either})(?![\w/-])" if ordered else r"(?!)")

    def __call__(self, text: str) -> str:
        """`text` without them; of a folder named by itself its last part is left."""
        shortened = self._below.sub("", text)
        return self._itself.sub(lambda found: Path(found[0]).name or found[0], shortened)
