"""One entry of an archive, whatever its kind: a name, what it is, and a way to its bytes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """`refused` names what it is if it is neither a plain file nor a folder, else "".

    `open` must be called before the next entry is asked for; reading raises `BadArchive` when the
    bytes are damaged.
    """

    path: str
    is_folder: bool
    refused: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]
