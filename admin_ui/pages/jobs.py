"""Long work in the background: imports of models for now."""

from admin_ui.screens import Act, Screen, Shown
from admin_ui.tables import cursor_page
from admin_ui.visit import Visit


async def load(visit: Visit) -> Shown:
    page, document = await cursor_page(visit, "/imports", ("model", "state"))
    asked = {name: visit.query.get(name, "") for name in ("model", "state")}
    return Shown(document, page=page, asked=asked)


SCREENS = (
    Screen(
        path="/jobs",
        title="Jobs",
        menu="Jobs",
        template="jobs.html",
        load=load,
        live=("import.*",),
    ),
)
ACTS: tuple[Act, ...] = ()
