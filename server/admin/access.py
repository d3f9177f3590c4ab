"""Whether a principal may make a call: the row's action held against what the call is about."""

from collections.abc import Mapping
from typing import Any

from anyio import to_thread

from control.access.scopes import Principal
from control.pushes import get_push
from server.admin.call import Access, require
from server.admin.services import Services


async def check_access(
    services: Services,
    access: Access | None,
    principal: Principal,
    path: Mapping[str, str],
    query: Mapping[str, Any],
) -> None:
    """Raises NotAllowed; NotFound when what it is about decides, and there is no such thing."""
    if access is None or access.action is None:
        return
    about = access.about
    if about == "push":
        name = await to_thread.run_sync(
            _repository_of_push, services, path["push"], limiter=services.threads
        )
    elif about:
        name = path.get(about) or query.get(about) or ""
    else:
        name = ""
    require(principal, access.action, name)


def _repository_of_push(services: Services, push_id: str) -> str:
    with services.database.reading() as session:
        return get_push(session, push_id).repository
