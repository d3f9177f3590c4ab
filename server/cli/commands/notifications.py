"""`modelyard webhook …`, `modelyard delivery …` and `modelyard mute …`."""

import argparse
from typing import Any

from control.notifications.kinds import NotificationKind
from control.notifications.payload import BodyFormat
from control.notifications.policy import DeliveryState
from control.notifications.views import (
    DeliveryView,
    MuteView,
    WebhookSecretView,
    WebhookTestView,
    WebhookView,
)
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, CommandFailed, argument, limited
from server.cli.commands.output import (
    Columns,
    ListOutput,
    MessageOutput,
    RecordOutput,
    Shown,
    plain,
)
from server.cli.commands.secret_input import read_secret
from server.cli.commands.users import NothingToChange, seconds

_WEBHOOKS: Columns = {
    "name": "name",
    "url": "url",
    "format": "format",
    "told of": lambda item: list(item.kinds) or "everything",
    "models": "models",
    "enabled": "enabled",
    "waiting": "waiting",
    "dropped": "dropped",
    "delivered": "delivered_at",
    "last error": "last_error",
}
_DELIVERIES: Columns = {
    "id": "id",
    "at": "last_at",
    "webhook": "webhook",
    "kind": "kind",
    "title": "title",
    "count": "count",
    "state": "state",
    "tries": "attempts",
    "last error": "last_error",
}
_MUTES: Columns = {
    "id": "id",
    "model": "model",
    "kinds": lambda item: list(item.kinds) or "everything",
    "until": lambda item: item.until or "for good",
    "by": "by",
    "note": "note",
}


class MessageNotDelivered(CommandFailed):
    """A test message that the receiver did not accept."""


def list_webhooks(given: argparse.Namespace, api: ApiClient) -> Shown:
    return ListOutput(list(api.items("/webhooks", WebhookView)), _WEBHOOKS)


def show_webhook(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("webhooks", given.NAME), WebhookView))


def create_webhook(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {"name": given.NAME, "url": _url(given.URL), **_terms(given)}
    made = api.call("POST", "/webhooks", WebhookSecretView, body)
    sentence = f"webhook {made.webhook.name} created; its secret is shown only once"
    return MessageOutput(sentence, made, made.secret)


def change_webhook(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = _terms(given)
    if given.to is not None:
        body["url"] = _url(given.to)
    if given.enable or given.disable:
        body["enabled"] = given.enable
    if not body:
        raise NothingToChange(
            "give --to, --format, --kind, --model, --window, --enable or --disable"
        )
    view = api.call("PATCH", path_of("webhooks", given.NAME), WebhookView, body)
    return MessageOutput(f"webhook {view.name} changed", view)


def rotate_secret(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {"at_once": given.at_once}
    path = path_of("webhooks", given.NAME, "rotate")
    made = api.call("POST", path, WebhookSecretView, body)
    until = "now" if given.at_once else "in a day"
    sentence = (
        f"webhook {made.webhook.name} has a new secret, shown only once; the old ends {until}"
    )
    return MessageOutput(sentence, made, made.secret)


def test_webhook(given: argparse.Namespace, api: ApiClient) -> Shown:
    view = api.call("POST", path_of("webhooks", given.NAME, "test"), WebhookTestView)
    if not view.delivered:
        raise MessageNotDelivered(f"the test message did not arrive: {plain(view.error)}")
    said = f": {plain(view.answer)}" if view.answer else ""
    took = f"in {view.took_s:.2f} s"
    return MessageOutput(f"test message {view.id} accepted with {view.status} {took}{said}", view)


def delete_webhook(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("webhooks", given.NAME))
    return MessageOutput(f"webhook {given.NAME} deleted")


def list_deliveries(given: argparse.Namespace, api: ApiClient) -> Shown:
    wanted = {"webhook": given.webhook, "state": given.state}
    items = api.items("/deliveries", DeliveryView, given.limit, **wanted)
    return ListOutput(list(items), _DELIVERIES)


def show_delivery(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("deliveries", given.ID), DeliveryView))


def retry_delivery(given: argparse.Namespace, api: ApiClient) -> Shown:
    view = api.call("POST", path_of("deliveries", given.ID, "retry"), DeliveryView)
    return MessageOutput(f"message {view.id} is sent to webhook {view.webhook} now", view)


def list_mutes(given: argparse.Namespace, api: ApiClient) -> Shown:
    return ListOutput(list(api.items("/mutes", MuteView)), _MUTES)


def create_mute(given: argparse.Namespace, api: ApiClient) -> Shown:
    body: dict[str, Any] = {"model": given.MODEL, "note": given.note, "kinds": given.kind or []}
    if given.lasts:
        body["for_s"] = given.lasts
    view = api.call("POST", "/mutes", MuteView, body)
    sentence = f"no messages about {view.model}; modelyard mute delete {view.id} ends that"
    return MessageOutput(sentence, view)


def delete_mute(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("mutes", given.ID))
    return MessageOutput(f"mute {given.ID} deleted")


def _url(text: str) -> str:
    """A URL may be a secret, which the list of processes would show: "-" reads it from stdin."""
    return read_secret("-") if text == "-" else text


def _terms(given: argparse.Namespace) -> dict[str, Any]:
    wanted = {
        "format": given.format,
        "kinds": given.kind,
        "models": given.model,
        "window_s": given.window,
    }
    return {name: value for name, value in wanted.items() if value is not None}


_NAME = argument("NAME", "The webhook's name.")
_ID = argument("ID", "The message's id, as `delivery list` shows it.")
_KIND = argument(
    "--kind",
    "Only of this kind; repeat it for several. [everything]",
    action="append",
    choices=[str(kind) for kind in NotificationKind],
)
_TERMS = (
    argument("--format", "The body. [json]", choices=[str(one) for one in BodyFormat]),
    _KIND,
    argument(
        "--model", "Only about these; may hold *; repeat it for several. [all]", action="append"
    ),
    argument(
        "--window",
        "Within it what says the same of the same thing is one message, e.g. 30m; never for a "
        "message each time. [10m]",
        type=seconds,
    ),
)

COMMANDS = (
    CliCommand("webhook list", "list webhooks", list_webhooks),
    CliCommand("webhook show", "show a webhook and how its last try ended", show_webhook, (_NAME,)),
    CliCommand(
        "webhook create",
        "create a webhook for notifications and print its secret, which is shown only once",
        create_webhook,
        (
            _NAME,
            argument("URL", "Where messages are posted, https://; - for stdin."),
            *_TERMS,
        ),
    ),
    CliCommand(
        "webhook change",
        "change a webhook, or switch it off and on",
        change_webhook,
        (
            _NAME,
            argument("--to", "Another URL; - for stdin."),
            *_TERMS,
            argument("--enable", "Send to it again.", action="store_true"),
            argument("--disable", "Send nothing to it.", action="store_true"),
        ),
    ),
    CliCommand(
        "webhook rotate",
        "give a webhook a new secret and print it; for a day messages are signed with both",
        rotate_secret,
        (_NAME, argument("--at-once", "The old secret signs nothing more.", action="store_true")),
    ),
    CliCommand(
        "webhook test",
        "send a test message and show what the receiver answers",
        test_webhook,
        (_NAME,),
    ),
    CliCommand(
        "webhook delete",
        "delete a webhook with the messages that wait for it",
        delete_webhook,
        (_NAME,),
    ),
    CliCommand(
        "delivery list",
        "list messages to webhooks, newest first",
        list_deliveries,
        (
            argument("--webhook", "Only to this webhook."),
            argument(
                "--state", "Only in this state.", choices=[str(state) for state in DeliveryState]
            ),
            limited(),
        ),
    ),
    CliCommand("delivery show", "show a message and its tries", show_delivery, (_ID,)),
    CliCommand("delivery retry", "send a message now, with the same id", retry_delivery, (_ID,)),
    CliCommand("mute list", "list mutes, those that ended lately among them", list_mutes),
    CliCommand(
        "mute create",
        "send no messages about a model for a while",
        create_mute,
        (
            argument("MODEL", "The model or route; may hold *."),
            argument(
                "--for",
                "How long, e.g. 2h. [for good]",
                dest="lasts",
                metavar="TIME",
                type=seconds,
            ),
            _KIND,
            argument("--note", "Why.", default=""),
        ),
    ),
    CliCommand(
        "mute delete",
        "send messages again",
        delete_mute,
        (argument("ID", "The mute's id, as `mute list` shows it."),),
    ),
)
