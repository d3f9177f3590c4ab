"""The settings in force on this server, and where each value came from."""

from admin_ui.screens import Act, Screen, Shown
from admin_ui.tables import table
from admin_ui.visit import Visit
from control.access.scopes import Action


async def load(visit: Visit) -> Shown:
    rows = await visit.every("/settings")
    keys = {"name": lambda row: row["name"], "source": lambda row: (row["source"], row["name"])}
    only = visit.query.get("only", "")
    kept = [row for row in rows if only != "set" or row["source"] != "default"]
    shown = table(visit, kept, keys, "name", lambda row: f"{row['name']} {row['value']}")
    return Shown({"items": list(shown.rows)}, table=shown, only=only)


SCREENS = (
    Screen(
        path="/settings",
        title="Settings",
        menu="Settings",
        template="settings.html",
        load=load,
        needs=Action.ADMIN,
    ),
)
ACTS: tuple[Act, ...] = ()
