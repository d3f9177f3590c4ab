"""Models that load on demand on this server: what is loaded, what holds it, and its control."""

from functools import partial

import msgspec
from anyio import to_thread
from msgspec.structs import asdict

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.errors import Conflict
from control.gateways.queries import ResidencyAnswer, ResidencyQuery
from control.loads import LONGEST_NAME
from control.views import Page

_PATH = "/residency/{model}"
_CHANGE = Access(Action.OPERATE, "model")


class ResidencyView(msgspec.Struct, frozen=True):
    """A version that loads on demand. `state`: loaded, loading or unloaded; `bytes` of memory it is
    granted; `idle_s` since its last request, null before the first; requests that are `waiting` for
    its load; `evictions` to make room for another since the server began; `held_by`: why it would
    not be evicted now, "" if it would. `warm_hours`, `keep_warm_s`, `min_residency_s` and
    `idle_unload_s` as its config and the settings say."""

    model: str
    version: int
    state: str
    pinned: bool
    bytes: int
    idle_s: float | None
    waiting: int
    evictions: int
    held_by: str
    warm_hours: str
    keep_warm_s: float
    min_residency_s: float
    idle_unload_s: float


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
    return from_page(Page(tuple(ResidencyView(**asdict(one)) for one in found.items)))


_DONE = {"pin": "pinned", "unpin": "unpinned", "evict": "evicted", "load": "loaded"}


def _change(verb: str, path: str, action: str, summary: str) -> Operation:
    return Operation(
        verb=verb,
        path=f"{_PATH}/{path}",
        access=_CHANGE,
        tag="Server",
        summary=summary,
        act=partial(_act, action=action),
        list_of=ResidencyView,
    )


OPERATIONS = (
    Operation(
        verb="GET",
        path="/residency",
        access=Access(Action.READ, "model"),
        tag="Server",
        summary="Models that load on demand on this server: what is loaded, and what holds it",
        act=list_,
        list_of=ResidencyView,
        query=(Param("model", "Only of this model."),),
    ),
    _change("PUT", "pin", "pin", "Load a model on this server, and never evict it"),
    _change("DELETE", "pin", "unpin", "Let a model that was pinned be evicted again"),
    _change("POST", "evict", "evict", "Unload a model that loads on demand until its next request"),
    _change("POST", "load", "load", "Load a model before its first request"),
)
