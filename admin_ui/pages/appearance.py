"""Light, dark, or as the system says: kept in a cookie, so that no page flashes in the other."""

from starlette.responses import RedirectResponse, Response

from admin_ui.headers import PRIVATE
from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen
from admin_ui.text import local
from admin_ui.theme import COOKIE, THEMES

YEAR_S = 365 * 86_400


async def choose(context: PageContext) -> Response:
    response = RedirectResponse(local(context.form.get("next", "")), 303, PRIVATE)
    theme = context.form.get("theme", "")
    if theme in THEMES:
        secure = context.services.secure
        response.set_cookie(
            COOKIE, theme, max_age=YEAR_S, path="/", httponly=True, samesite="lax", secure=secure
        )
    else:
        response.delete_cookie(COOKIE, path="/")
    return response


SCREENS: tuple[Screen, ...] = ()
ACTS = (FormAction(path="/theme", screen="/", run=choose),)
