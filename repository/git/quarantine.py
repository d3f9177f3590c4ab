"""Where git keeps a push's objects until the push is accepted; only hooks are told."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repository.git.errors import BadQuarantine

VARIABLES = ("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH")
"""The environment variables in which git tells a hook of its quarantine."""

PREFIX = "tmp_objdir-"
"""How git names the folder, below the repository's `objects`."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder of one push's objects; gone when its pre-receive hook has answered."""

    objects: Path

    def environment(self, repository: Path) -> dict[str, str]:
        """What lets git see these objects beside the repository's own."""
        own = str(repository / "objects")
        return {
            "GIT_OBJECT_DIRECTORY": str(self.objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": own,
            "GIT_QUARANTINE_PATH": str(self.objects),
        }


def quarantine_of(variables: Mapping[str, str], repository: Path) -> Quarantine | None:
    """The quarantine a hook has told of, or None when there is none.

    Raises `BadQuarantine` when it is not a folder that git makes in this repository.
    """
    given = variables.get("GIT_QUARANTINE_PATH", "")
    if not given:
        return None
    path = Path(os.path.realpath(given))
    own = Path(os.path.realpath(repository / "objects"))
    if path.parent != own or not path.name.startswith(PREFIX):
        raise BadQuarantine(f"'{given}' is no quarantine of '{repository}'; one lies in '{own}'")
    return Quarantine(path)
