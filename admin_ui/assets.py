"""The static files, ours and the vendored ones, kept by browsers under their content's digest."""

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from admin_ui.headers import GUARDS


class Assets(StaticFiles):
    """Asked for as `templates.asset` names them, they never change."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        named = scope["query_string"].startswith(b"v=")
        kept = "public, max-age=31536000, immutable" if named else "no-cache"
        response.headers.update({**GUARDS, "Cache-Control": kept})
        return response
