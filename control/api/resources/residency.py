"""Models that load on demand on this server: what is loaded, what holds it, and its control."""

from functools import partial

from anyio import to_thread

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.errors import Conflict
from control.gateways.queries import ResidencyAnswer, ResidencyQuery, ResidentVersion
from control.loads import LONGEST_NAME
from control.views import Page

_PATH = "/residency/{model}"
_CHANGE = Access(Action.OPERATE, "model")


async def list_(call: AuthorizedCall) -> EndpointResult:
    found: ResidencyAnswer = await call.services.ask_gateway(
        ResidencyQuery(call.query.get("model", ""))
    )
    return _page(found)


async def _act(call: AuthorizedCall, action: str) -> EndpointResult:
    """Raises Conflict where the gateway says why not; what it has done of it all the same is in
    the audit by then."""
    model = call.path["model"]
    found: ResidencyAnswer = await call.services.ask_gateway(ResidencyQuery(model, action))
    if found.evicted or not found.problem:
        await to_thread.run_sync(_note, call, action, limiter=call.services.threads)
    if found.problem:
        raise Conflict(found.problem)
    return _page(found)


def _note(call: AuthorizedCall, action: str) -> None:
    with call.services.database.change(call.actor) as tx:
        subject = f"model:{call.path['model']}"[:LONGEST_NAME]
        tx.changed(f"residency.{_DONE[action]}", subject, None, None)


def _page(found: ResidencyAnswer) -> EndpointResult:
    return from_page(Page(found.items))


_DONE = {"pin": "pinned", "unpin": "unpinned", "evict": "evicted", "load": "loaded"}


def _change(verb: str, path: str, action: str, summary: str) -> Operation:
    return Operation(
        verb=verb,
        path=f"{_PATH}/{path}",
        access=_CHANGE,
        tag="Server",
        summary=summary,
        act=partial(_act, action=action),
        list_of=ResidentVersion,
    )


OPERATIONS = (
    Operation(
        verb="GET",
        path="/residency",
        access=Access(Action.READ, "model"),
        tag="Server",
        summary="Models that load on demand on this server: what is loaded, and what holds it",
        act=list_,
        list_of=ResidentVersion,
        query=(Param("model", "Only of this model."),),
    ),
    _change("PUT", "pin", "pin", "Load a model on this server, and never evict it"),
    _change("DELETE", "pin", "unpin", "Let a model that was pinned be evicted again"),
    _change("POST", "evict", "evict", "Unload a model that loads on demand until its next request"),
    _change("POST", "load", "load", "Load a model before its first request"),
)
