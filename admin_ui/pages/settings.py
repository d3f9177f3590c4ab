"""The settings in force on this server, and where each value came from."""

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.tables import table
from control.access.scopes import Action


async def load(context: PageContext) -> ScreenContent:
    rows = await context.every("/settings")
    keys = {"name": lambda row: row["name"], "source": lambda row: (row["source"], row["name"])}
    only = context.query.get("only", "")
    kept = [row for row in rows if only != "set" or row["source"] != "default"]
    shown = table(context, kept, keys, "name", lambda row: f"{row['name']} {row['value']}")
    return ScreenContent({"items": list(shown.rows)}, table=shown, only=only)


SCREENS = (
    Screen(
        path="/settings",
        title="Settings",
        menu="Settings",
        docs="settings",
        template="settings.html",
        load=load,
        needs=Action.ADMIN,
    ),
)
ACTS: tuple[FormAction, ...] = ()
