"""One problem: what it is about, and the form that acknowledges it."""

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.text import link

PATH = "/problems/{problem}"
_ACKNOWLEDGEMENT = "/problems/{problem}/acknowledgement"


async def load(context: PageContext) -> ScreenContent:
    key = context.path["problem"]
    found = next((one for one in await context.every("/problems") if one["key"] == key), None)
    if found is None:
        raise ControlApiError(404, "not_found", "this problem has passed, or is another one now")
    return ScreenContent(
        found,
        title=found["title"],
        problem=found,
        acknowledge=link(PATH + "/acknowledge", problem=key),
        take_back=link(PATH + "/unacknowledge", problem=key),
    )


async def acknowledge(context: PageContext) -> str:
    body = {"note": context.form.get("note", "").strip()}
    await context.change("PUT", _ACKNOWLEDGEMENT, body, problem=context.path["problem"])
    return "/"


async def take_back(context: PageContext) -> str:
    await context.change("DELETE", _ACKNOWLEDGEMENT, problem=context.path["problem"])
    return "/"


SCREENS = (Screen(path=PATH, title="Problem", template="problem.html", load=load, under="/"),)
ACTS = (
    FormAction(path=PATH + "/acknowledge", screen=PATH, run=acknowledge),
    FormAction(path=PATH + "/unacknowledge", screen=PATH, run=take_back),
)
