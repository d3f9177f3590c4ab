"""Rolling a model back, as the pages of models, routes and rollouts offer it."""

from collections.abc import Iterable, Mapping
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.services import ControlApiError
from admin_ui.text import link

PATH = "/models/{model}/rollback"
FIELDS = ("to", "steps", "why")


async def rollback_offer(context: PageContext, model: str) -> dict[str, Any] | None:
    """Where a rollback may lead, what was rolled back itself last; None where there is nothing
    else, or no version answers now. No `choices` where the route cannot be rolled back, which
    `blocked` says."""
    found = await _offer(context, model)
    if found.get("blocked"):
        return {**found, "choices": []}
    targets = in_order(found["targets"], found["serving"]) if found else []
    if not targets or targets[0]["rolled_back"] or found["serving"] is None:
        return None
    choices = [(one["version"], _words(found, one)) for one in targets]
    return {**found, "choices": choices}


def in_order(targets: Iterable[Mapping[str, Any]], serving: int | None) -> list[Mapping[str, Any]]:
    """As a rollback offers them, where the first is chosen if nothing else is: what was rolled back
    itself last, newer versions after those that come before the one that serves. Pure."""
    return sorted(
        targets,
        key=lambda one: (one["rolled_back"], serving is not None and one["version"] > serving),
    )


async def _offer(context: PageContext, model: str) -> dict[str, Any]:
    return dict(await context.maybe(PATH, model=model) or {})


def _words(offer: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    """A version to choose, with what speaks for it and against it."""
    words = [str(one["version"])]
    if one["version"] == offer["to"]:
        words.append("the last healthy one")
    if one["rolled_back"]:
        words.append("was rolled back itself")
    if not one["ready"]:
        words.append("not loaded")
    return ", ".join(words)


async def rolled_back_version(
    context: PageContext, model: str, version: int
) -> dict[str, Any] | None:
    """When and why a version was rolled back, with the page that tells of it; None for one that was
    not."""
    lost = (await _offer(context, model)).get("rolled_back", ())
    found = next((one for one in lost if one["version"] == version), None)
    return found and {**found, "page": link("/rollouts/{rollout}", rollout=found["rollout"])}


async def roll_back(context: PageContext, model: str) -> str:
    """The page of the rollout that goes back."""
    to, steps, why = (context.form.get(field, "").strip() for field in FIELDS)
    body: dict[str, Any] = {"to": int(to) if to.isascii() and to.isdigit() else to} if to else {}
    if steps:
        body["plan"] = {"steps": steps}
    if why:
        body["why"] = why
    try:
        found = await context.change("POST", PATH, body, model=model)
    except ControlApiError as refused:
        field = refused.field if refused.field in FIELDS else ""
        raise ControlApiError(
            refused.status, refused.code, refused.message, field, refused.headers
        ) from refused
    return link("/rollouts/{rollout}", rollout=found.document["id"])
