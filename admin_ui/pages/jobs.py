"""Long work in the background: imports of models for now."""

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.tables import cursor_page


async def load(visit: PageContext) -> ScreenContent:
    page, document = await cursor_page(visit, "/imports", ("model", "state"))
    asked = {name: visit.query.get(name, "") for name in ("model", "state")}
    return ScreenContent(document, page=page, asked=asked)


SCREENS = (
    Screen(
        path="/jobs",
        title="Jobs",
        menu="Jobs",
        docs="console",
        template="jobs.html",
        load=load,
        live=("import.*",),
    ),
)
ACTS: tuple[FormAction, ...] = ()
