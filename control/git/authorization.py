"""Whether a request may do what its path and verb say, with the repository they name."""

from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from starlette.requests import Request

from control.access.scopes import Action, Principal, allows, why_not
from control.authentication.identify import address_of, identify
from control.deployments.repositories import get_repository
from control.errors import NotAllowed
from control.services import ControlServices
from control.views import RepositoryView
from repository.git import bare


@dataclass(frozen=True, slots=True)
class RepositoryAccess:
    """Somebody who may, and the repository with its folder on the disk."""

    principal: Principal
    address: str
    repository: RepositoryView
    folder: Path


async def enter(
    services: ControlServices, request: Request, action: Action, name: str, again: bool = False
) -> RepositoryAccess:
    """`again`: a request that follows from another, which a token's rate has counted.

    Raises Unauthenticated, TooMany, NotAllowed, NotFound, UnknownRepository, DatabaseGone.
    """
    caller = await identify(services, request, again)
    check_allowed(caller.principal, action, name)
    view = await find_repository(services, name)
    folder = bare.find(services.facts.store, name).path
    return RepositoryAccess(caller.principal, address_of(request), view, folder)


def check_allowed(principal: Principal, action: Action, name: str) -> None:
    """Whether there is any ref for which it may; each one is asked about when it is known.

    Raises NotAllowed.
    """
    refs = {"", *(scope.ref for scope in principal.scopes or ())}
    if not any(allows(principal, action, name, ref) for ref in refs):
        raise NotAllowed(why_not(principal, action, name))


async def find_repository(services: ControlServices, name: str) -> RepositoryView:
    """Raises NotFound, DatabaseGone."""

    def look() -> RepositoryView:
        with services.database.reading() as session:
            return get_repository(session, name)

    return await to_thread.run_sync(look, limiter=services.threads)
