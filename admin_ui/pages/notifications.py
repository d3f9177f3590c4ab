"""Webhooks, the messages to them, and mutes."""

import asyncio
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import cursor_page
from admin_ui.text import link
from control.notifications.kinds import MEANINGS
from control.notifications.payload import BodyFormat
from control.notifications.policy import DeliveryState
from control.notifications.terms import USUAL_WINDOW_S

ALL, ONE = "/notifications", "/notifications/{webhook}"
MUTE = "/notifications/mutes"
FORMATS = ((BodyFormat.JSON, "JSON, signed"), (BodyFormat.SLACK, "Slack-compatible text"))
WINDOWS = (
    ("0", "send each"),
    ("60", "a minute"),
    (str(USUAL_WINDOW_S), "10 minutes"),
    ("3600", "an hour"),
    ("86400", "a day"),
)
LASTING = (
    ("3600", "an hour"),
    ("14400", "4 hours"),
    ("86400", "a day"),
    ("604800", "a week"),
    ("", "until it is ended"),
)


async def load_all(context: PageContext) -> ScreenContent:
    webhooks, mutes, models, routes, (page, deliveries) = await asyncio.gather(
        context.every("/webhooks"),
        context.every("/mutes"),
        context.every("/models"),
        context.every("/routes"),
        cursor_page(context, "/deliveries", ("webhook", "state")),
    )
    now = context.services.now()
    twin = {"webhooks": webhooks, "mutes": mutes, "deliveries": deliveries}
    return ScreenContent(
        twin,
        subjects=sorted({"*"} | {one["name"] for one in (*models, *routes)}),
        webhooks=[{**one, "mood": mood(one)} for one in webhooks],
        mutes=[{**one, "over": _is_over(one, now)} for one in mutes],
        page=page,
        names=[one["name"] for one in webhooks],
        states=[str(state) for state in DeliveryState],
        webhook=context.query.get("webhook", ""),
        state=context.query.get("state", ""),
        kinds=[(str(kind), meaning) for kind, meaning in MEANINGS.items()],
        formats=[(str(value), text) for value, text in FORMATS],
        windows=WINDOWS,
        usual_window=str(USUAL_WINDOW_S),
        lasting=LASTING,
    )


async def load(context: PageContext) -> ScreenContent:
    name = context.path["webhook"]
    webhook, found = await asyncio.gather(
        context.get("/webhooks/{webhook}", webhook=name),
        context.get("/deliveries", {"webhook": name, "limit": "50"}),
    )
    verbs = ("test", "change", "switch", "rotate", "delete")
    window = str(webhook["window_s"])
    known = dict(WINDOWS)
    return ScreenContent(
        {**webhook, "deliveries": found["items"]},
        title=name,
        hook={**webhook, "mood": mood(webhook)},
        deliveries=found["items"],
        acts={verb: link(f"{ONE}/{verb}", webhook=name) for verb in verbs},
        kinds=[(str(kind), meaning) for kind, meaning in MEANINGS.items()],
        formats=[(str(value), text) for value, text in FORMATS],
        windows=WINDOWS if window in known else (*WINDOWS, (window, f"{window} s")),
    )


def mood(webhook: Any) -> str:
    """A word for how a webhook is."""
    if not webhook["enabled"]:
        return "disabled"
    if webhook["failures"]:
        return "failing"
    return "delivering" if webhook["delivered_at"] else "unused"


async def create(context: PageContext) -> ScreenContent:
    """The secret is shown at once, and only now."""
    body = {"name": context.form.get("name", "").strip(), "url": _url(context), **_terms(context)}
    made = (await context.change("POST", "/webhooks", body)).document
    return _secret(made, f"Webhook {made['webhook']['name']} is there")


async def rotate(context: PageContext) -> ScreenContent:
    body = {"at_once": context.form.get("at_once") == "yes"}
    name = context.path["webhook"]
    made = (await context.change("POST", "/webhooks/{webhook}/rotate", body, webhook=name)).document
    return _secret(made, f"Webhook {name} has a new secret")


async def send_test(context: PageContext) -> ScreenContent:
    name = context.path["webhook"]
    found = (await context.change("POST", "/webhooks/{webhook}/test", webhook=name)).document
    title = "The test message arrived" if found["delivered"] else "The test message did not arrive"
    back, again = link(ONE, webhook=name), link(f"{ONE}/test", webhook=name)
    return ScreenContent(found, title=title, tested=found, name=name, back=back, again=again)


async def change(context: PageContext) -> str:
    body = _terms(context)
    if context.form.get("url", "").strip():
        body["url"] = _url(context)
    return await _changed(context, body)


async def switch(context: PageContext) -> str:
    return await _changed(context, {"enabled": context.form.get("enabled") == "yes"})


async def delete(context: PageContext) -> str:
    await context.change("DELETE", "/webhooks/{webhook}", webhook=context.path["webhook"])
    return ALL


async def retry(context: PageContext) -> str:
    delivery = context.path["delivery"]
    await context.change("POST", "/deliveries/{delivery}/retry", delivery=delivery)
    return ALL


async def mute(context: PageContext) -> str:
    form = context.form
    body: dict[str, Any] = {
        "model": form.get("model", "").strip(),
        "kinds": context.several("kinds"),
        "note": form.get("note", "").strip(),
    }
    if form.get("for_s", "").isdigit():
        body["for_s"] = int(form["for_s"])
    if not body["model"]:
        raise ControlApiError(422, "invalid", "say which model, or * for all", "model")
    await context.change("POST", "/mutes", body)
    return ALL


async def unmute(context: PageContext) -> str:
    await context.change("DELETE", "/mutes/{mute}", mute=context.path["mute"])
    return ALL


async def _changed(context: PageContext, body: dict[str, Any]) -> str:
    name, expected = context.path["webhook"], context.form.get("revision", "")
    revision = int(expected) if expected.isdigit() else None
    await context.change("PATCH", "/webhooks/{webhook}", body, revision, webhook=name)
    return link(ONE, webhook=name)


def _secret(made: Any, title: str) -> ScreenContent:
    name = made["webhook"]["name"]
    back, test = link(ONE, webhook=name), link(f"{ONE}/test", webhook=name)
    return ScreenContent(
        made, title=title, made=made["webhook"], secret=made["secret"], back=back, test=test
    )


def _url(context: PageContext) -> str:
    url = context.form.get("url", "").strip()
    if not url:
        raise ControlApiError(422, "invalid", "say where messages are posted: https://…", "url")
    return url


def _terms(context: PageContext) -> dict[str, Any]:
    """Every box ticked is as none: what is told later is told too."""
    form, kinds = context.form, context.several("kinds")
    return {
        "format": form.get("format", ""),
        "kinds": [] if len(kinds) == len(MEANINGS) else kinds,
        "models": form.get("models", "").replace(",", " ").split(),
        "window_s": int(form["window_s"]) if form.get("window_s", "").isdigit() else USUAL_WINDOW_S,
    }


def _is_over(row: Any, now: Any) -> bool:
    return row["until"] is not None and type(now).fromisoformat(row["until"]) <= now


SCREENS = (
    Screen(
        path=ALL,
        title="Notifications",
        menu="Notifications",
        docs="notifications",
        template="notifications.html",
        load=load_all,
        live=("webhook.*", "delivery.*", "mute.*"),
        personal=True,
    ),
    Screen(
        path=ONE,
        title="Webhook",
        template="webhook.html",
        load=load,
        under=ALL,
        live=("webhook.*", "delivery.*"),
        personal=True,
    ),
)
ACTS = (
    FormAction(path=ALL, screen=ALL, run=create, template="webhook_secret.html"),
    FormAction(path=MUTE, screen=ALL, run=mute),
    FormAction(path=MUTE + "/{mute}/end", screen=ALL, run=unmute),
    FormAction(path=ALL + "/deliveries/{delivery}/retry", screen=ALL, run=retry),
    FormAction(path=ONE + "/test", screen=ONE, run=send_test, template="webhook_test.html"),
    FormAction(path=ONE + "/change", screen=ONE, run=change),
    FormAction(path=ONE + "/switch", screen=ONE, run=switch),
    FormAction(path=ONE + "/rotate", screen=ONE, run=rotate, template="webhook_secret.html"),
    FormAction(path=ONE + "/delete", screen=ONE, run=delete, typed_name="webhook"),
)
