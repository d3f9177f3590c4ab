"""Webhooks that notifications are sent to: administrators make them, operators test them."""

from typing import Annotated
from urllib.parse import quote

from anyio import WouldBlock, to_thread
from msgspec import field

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Natural, Text, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation
from control.api.responses import from_page
from control.errors import TooMany
from control.notifications.kinds import NotificationKind
from control.notifications.messages import (
    OutgoingMessage,
    message_for_test,
    settle_test,
    view_of_test,
)
from control.notifications.payload import BodyFormat
from control.notifications.policy import WebhookAnswer
from control.notifications.targets import LONGEST_URL
from control.notifications.terms import LONGEST_WINDOW_S, MOST_MODELS, USUAL_WINDOW_S
from control.notifications.views import WebhookSecretView, WebhookTestView, WebhookView
from control.notifications.webhooks import (
    ROTATION,
    WebhookSecret,
    WebhookTerms,
    change_webhook,
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhooks,
    rotate_secret,
)

_READ = Access(Action.READ)
_ADMIN = Access(Action.ADMIN)
_TEST = Access(Action.OPERATE)
_PATH = "/webhooks/{webhook}"

_Url = Annotated[
    str,
    meaning(
        "Where messages are posted: https://, or what --notification-allow allows. It is not shown "
        "again.",
        max_length=LONGEST_URL,
        examples=["https://hooks.example.com/modelyard"],
    ),
]
_Format = Annotated[
    Text, meaning(f"The body: {' or '.join(BodyFormat)}.", examples=[str(BodyFormat.JSON)])
]
_Kinds = Annotated[
    list[Text],
    meaning(
        f"What it is told of, all if empty: {', '.join(NotificationKind)}.",
        max_length=len(NotificationKind),
        examples=[[str(NotificationKind.ROLLED_BACK)]],
    ),
]
_Models = Annotated[
    list[Text],
    meaning(
        "Which models and routes it is told of; names may hold *, all if empty.",
        max_length=MOST_MODELS,
        examples=[["digits", "fraud-*"]],
    ),
]
_Window = Annotated[
    Natural,
    meaning(
        "Within so many seconds what says the same of the same thing is one message with a count; "
        f"0 for a message each time, {LONGEST_WINDOW_S} at most.",
        examples=[USUAL_WINDOW_S],
    ),
]


class NewWebhook(ApiBody, frozen=True):
    name: Annotated[str, meaning("Its name.", max_length=63, examples=["on-call"])]
    url: _Url
    format: _Format = BodyFormat.JSON
    kinds: _Kinds = field(default_factory=list)
    models: _Models = field(default_factory=list)
    window_s: _Window = USUAL_WINDOW_S


class WebhookChange(ApiBody, frozen=True):
    """What is left out stays as it is."""

    url: _Url | None = None
    format: _Format | None = None
    kinds: _Kinds | None = None
    models: _Models | None = None
    window_s: _Window | None = None
    enabled: Annotated[bool | None, meaning("Whether anything is sent to it.")] = None


class SecretRotation(ApiBody, frozen=True):
    at_once: Annotated[
        bool,
        meaning(
            "Whether the old secret signs nothing any more; otherwise messages have both "
            f"signatures for {ROTATION.days * 24 + ROTATION.seconds // 3600} hours."
        ),
    ] = False


def list_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return from_page(list_webhooks(session, **call.paging()))


def create(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewWebhook)
    wanted = WebhookTerms(given.url, given.format, given.kinds, given.models, given.window_s)
    with call.services.database.change(call.actor) as tx:
        made = create_webhook(tx, given.name, wanted, call.services.facts.notification_allow)
    return _secret(made, 201)


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return _one(get_webhook(session, call.path["webhook"]))


def change(call: AuthorizedCall) -> EndpointResult:
    given = call.given(WebhookChange)
    wanted = WebhookTerms(
        given.url, given.format, given.kinds, given.models, given.window_s, given.enabled
    )
    allowed = call.services.facts.notification_allow
    with call.services.database.change(call.actor) as tx:
        return _one(change_webhook(tx, call.path["webhook"], wanted, allowed, call.expected))


def rotate(call: AuthorizedCall) -> EndpointResult:
    at_once = call.given(SecretRotation).at_once
    with call.services.database.change(call.actor) as tx:
        return _secret(rotate_secret(tx, call.path["webhook"], at_once), 200)


def delete(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        delete_webhook(tx, call.path["webhook"], call.expected)
    return NOTHING


async def test(call: AuthorizedCall) -> EndpointResult:
    services, borrower = call.services, object()
    try:
        services.webhook_tests.acquire_on_behalf_of_nowait(borrower)
    except WouldBlock:
        raise TooMany("other test messages are being sent; try again", 5.0) from None
    try:
        message = await to_thread.run_sync(_composed, call, limiter=services.threads)
        answer = await services.webhooks.send(message)
        await to_thread.run_sync(_settled, call, message, answer, limiter=services.threads)
    finally:
        services.webhook_tests.release_on_behalf_of(borrower)
    return EndpointResult(view_of_test(message, answer))


def _composed(call: AuthorizedCall) -> OutgoingMessage:
    with call.services.database.change(call.actor) as tx:
        return message_for_test(tx, call.path["webhook"], call.services.url())


def _settled(call: AuthorizedCall, message: OutgoingMessage, answer: WebhookAnswer) -> None:
    with call.services.database.change(call.actor) as tx:
        settle_test(tx, message, answer)


def _one(view: WebhookView, status: int = 200) -> EndpointResult:
    return EndpointResult(view, status, view.revision, f"/api/v1/webhooks/{quote(view.name)}")


def _secret(made: WebhookSecret, status: int) -> EndpointResult:
    location = f"/api/v1/webhooks/{quote(made.view.name)}"
    return EndpointResult(WebhookSecretView(made.view, made.text), status, location=location)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/webhooks",
        access=_READ,
        tag="Notifications",
        summary="Webhooks, by name",
        run=list_,
        list_of=WebhookView,
    ),
    Operation(
        verb="POST",
        path="/webhooks",
        access=_ADMIN,
        tag="Notifications",
        summary="Create a webhook; its secret is in this response only",
        run=create,
        takes=NewWebhook,
        gives=WebhookSecretView,
        status=201,
    ),
    Operation(
        verb="GET",
        path=_PATH,
        access=_READ,
        tag="Notifications",
        summary="A webhook, and how its last try ended",
        run=show,
        gives=WebhookView,
    ),
    Operation(
        verb="PATCH",
        path=_PATH,
        access=_ADMIN,
        tag="Notifications",
        summary="Change a webhook",
        run=change,
        takes=WebhookChange,
        gives=WebhookView,
        if_match=True,
    ),
    Operation(
        verb="DELETE",
        path=_PATH,
        access=_ADMIN,
        tag="Notifications",
        summary="Delete a webhook with the messages that wait for it",
        run=delete,
        status=204,
        if_match=True,
    ),
    Operation(
        verb="POST",
        path=_PATH + "/rotate",
        access=_ADMIN,
        tag="Notifications",
        summary="Give a webhook a new secret, which is in this response only",
        run=rotate,
        takes=SecretRotation,
        gives=WebhookSecretView,
    ),
    Operation(
        verb="POST",
        path=_PATH + "/test",
        access=_TEST,
        tag="Notifications",
        summary="Send a test message now, and tell what the receiver answers",
        act=test,
        gives=WebhookTestView,
    ),
)
