"""The admin port as one ASGI application: git and LFS first, then the API and the pages.

git streams both ways at once, which Starlette's requests do not; so it stands in front.
"""

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from server.admin.app import elsewhere

GIT = "/git/"


def outer_app(api: Sequence[BaseRoute], pages: Sequence[BaseRoute], git: Any) -> Any:
    """`git` gets every path below /git/; the rest goes to the API's routes, then to the pages."""
    inner = Starlette(routes=[*api, *pages], exception_handlers={HTTPException: elsewhere})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(GIT):
            await git(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return app
