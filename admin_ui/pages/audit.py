"""The audit: who changed what, from what to what, from where."""

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.tables import cursor_page
from control.access.scopes import Action

_FILTERS = ("actor", "action", "subject", "since", "until")


async def load(context: PageContext) -> ScreenContent:
    page, document = await cursor_page(context, "/audit", _FILTERS)
    asked = {name: context.query.get(name, "") for name in _FILTERS}
    known = {
        name: sorted({str(row[name]) for row in page.rows})
        for name in ("actor", "action", "subject")
    }
    changes = [_changes(row) for row in page.rows]
    return ScreenContent(document, page=page, asked=asked, known=known, changes=changes)


def _changes(row: dict[str, object]) -> list[tuple[str, object, object]]:
    """Field, before, after: those that differ. Pure."""
    before, after = row["before"] or {}, row["after"] or {}
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    names = [*before, *(name for name in after if name not in before)]
    rows = [(name, before.get(name), after.get(name)) for name in names]
    return [one for one in rows if one[1] != one[2]]


SCREENS = (
    Screen(
        path="/audit",
        title="Audit",
        menu="Audit",
        docs="security",
        template="audit.html",
        load=load,
        needs=Action.AUDIT,
    ),
)
ACTS: tuple[FormAction, ...] = ()
