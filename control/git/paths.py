"""What a path below /git/ asks for. Pure: nothing else of a request says which repository."""

import re
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException

from control.errors import NotFound
from repository.git.names import repository_problem
from repository.git.receive import GitService

PREFIX = "/git"
LFS = "info/lfs/"

_PATH = re.compile(rf"{PREFIX}/([^/]+)\.git/([A-Za-z0-9/._-]+)")


class GitPath(NamedTuple):
    """`rest`: what follows the repository's name, without its slash, e.g. "info/refs"."""

    repository: str
    rest: str

    @property
    def is_lfs(self) -> bool:
        return self.rest.startswith(LFS)


def target_of(raw_path: bytes) -> GitPath:
    """`raw_path` is the path as it was sent: an escaped character is none of ours.

    Raises NotFound.
    """
    found = _PATH.fullmatch(raw_path.decode("latin-1"))
    if found is None or repository_problem(found[1]):
        raise NotFound(f"there is nothing here; a repository's URL ends in {PREFIX}/NAME.git")
    return GitPath(found[1], found[2])


def advertised(query: bytes) -> GitService:
    """The service whose refs are asked for. Raises HTTPException for the dumb protocol."""
    services = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("service", [])
    if len(services) != 1 or services[0] not in tuple(GitService):
        choices = " or ".join(f"?service={service}" for service in GitService)
        raise HTTPException(403, f"only git's smart protocol is supported here: info/refs{choices}")
    return GitService(services[0])
