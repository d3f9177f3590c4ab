"""Where the store keeps an object, a repository's claim on it, and what is still coming in."""

import re
from dataclasses import dataclass
from pathlib import Path

from repository.lfs.errors import BadLfsName
from repository.lfs.pointer import is_oid

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class LfsPaths:
    """Paths below `root`; raises `BadLfsName` for an oid or a repository that would leave it."""

    root: Path

    @property
    def incoming(self) -> Path:
        return self.root / "incoming"

    def object(self, oid: str) -> Path:
        """Where the bytes lie, once for all repositories."""
        return self.root / "objects" / _spread(oid)

    def repository(self, repository: str) -> Path:
        """The folder of everything that one repository claims."""
        if not _REPOSITORY.fullmatch(repository) or ".." in repository:
            accepted = "1 to 100 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit"
            raise BadLfsName(f"repository {repository[:120]!r} has no valid name; use {accepted}")
        return self.root / "repositories" / repository

    def claim(self, repository: str, oid: str) -> Path:
        """The link by which a repository has an object."""
        return self.repository(repository) / _spread(oid)


def _spread(oid: str) -> str:
    if not is_oid(oid):
        raise BadLfsName(f"oid {oid[:80]!r} is no sha256; expected 64 lower-case hex digits")
    return f"{oid[:2]}/{oid[2:4]}/{oid}"
