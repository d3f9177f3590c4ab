"""Messages to webhooks, as they wait and as they ended; and mutes."""

from typing import Annotated

from msgspec import field

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Positive, Text, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.notifications.deliveries import get_delivery, list_deliveries, retry_delivery
from control.notifications.kinds import NotificationKind
from control.notifications.mutes import LONGEST_NOTE, create_mute, delete_mute, list_mutes
from control.notifications.policy import DeliveryState
from control.notifications.views import DeliveryView, MuteView

_READ = Access(Action.READ)
_CHANGE = Access(Action.OPERATE)


class NewMute(ApiBody, frozen=True):
    model: Annotated[
        Text, meaning("The model or route; may hold *, which alone is all.", examples=["digits"])
    ]
    kinds: Annotated[
        list[Text],
        meaning(
            f"What is not told, everything if empty: {', '.join(NotificationKind)}.",
            max_length=len(NotificationKind),
        ),
    ] = field(default_factory=list)
    for_s: Annotated[
        Positive | None, meaning("Seconds it lasts; for good if not given.", examples=[7200])
    ] = None
    note: Annotated[
        str, meaning("Why.", max_length=LONGEST_NOTE, examples=["the GPU is being replaced"])
    ] = ""


def list_(call: AuthorizedCall) -> EndpointResult:
    webhook, state = call.query.get("webhook"), call.query.get("state")
    with call.services.database.reading() as session:
        return from_page(list_deliveries(session, webhook=webhook, state=state, **call.paging()))


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(get_delivery(session, call.path["delivery"]))


def retry(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        return EndpointResult(retry_delivery(tx, call.path["delivery"]))


def list_muted(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return from_page(list_mutes(session, **call.paging()))


def mute(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewMute)
    with call.services.database.change(call.actor) as tx:
        view = create_mute(tx, given.model, given.kinds, given.for_s, given.note)
    return EndpointResult(view, 201, location=f"/api/v1/mutes/{view.id}")


def unmute(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        delete_mute(tx, call.path["mute"])
    return NOTHING


OPERATIONS = (
    Operation(
        verb="GET",
        path="/deliveries",
        access=_READ,
        tag="Notifications",
        summary="Messages to webhooks, newest first",
        run=list_,
        list_of=DeliveryView,
        query=(
            Param("webhook", "Only to this webhook."),
            Param("state", f"Only in this state: {', '.join(DeliveryState)}."),
        ),
    ),
    Operation(
        verb="GET",
        path="/deliveries/{delivery}",
        access=_READ,
        tag="Notifications",
        summary="A message, its tries and why the last one failed",
        run=show,
        gives=DeliveryView,
    ),
    Operation(
        verb="POST",
        path="/deliveries/{delivery}/retry",
        access=_CHANGE,
        tag="Notifications",
        summary="Send a message now, once more if it has arrived, with the same id",
        run=retry,
        gives=DeliveryView,
    ),
    Operation(
        verb="GET",
        path="/mutes",
        access=_READ,
        tag="Notifications",
        summary="Mutes, newest first, those that ended lately among them",
        run=list_muted,
        list_of=MuteView,
    ),
    Operation(
        verb="POST",
        path="/mutes",
        access=_CHANGE,
        tag="Notifications",
        summary="Send no messages about a model for a while",
        run=mute,
        takes=NewMute,
        gives=MuteView,
        status=201,
    ),
    Operation(
        verb="DELETE",
        path="/mutes/{mute}",
        access=_CHANGE,
        tag="Notifications",
        summary="Send messages about its model again",
        run=unmute,
        status=204,
    ),
)
