"""Sampled requests of this server's gateway: switched on for a while, looked up by their ids."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec.structs import asdict as asdict_of

from control.access.scopes import Action
from control.api.body_fields import ApiBody, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.clock import Moment
from control.errors import Conflict, NotFound
from control.gateways.queries import (
    SampledModelState,
    SampledRequest,
    SamplesQuery,
    SamplingQuery,
    SamplingState,
    StartSampling,
    StopSampling,
    samples_in,
)
from control.loads import LONGEST_NAME, states
from control.views import Page

_LOOK = Access(Action.OPERATE, "model")
_PATH = "/sampling/{model}"
MIB = 2**20


class SamplingTerms(ApiBody, frozen=True):
    minutes: Annotated[int, meaning("For how long.", ge=1, le=24 * 60)] = 15
    percent: Annotated[
        float,
        meaning(
            "Of the model's requests; more than 200 a second are not kept.",
            ge=0.001,
            le=100,
        ),
    ] = 100.0
    max_mib: Annotated[
        int, meaning("What is kept of them, in MiB; the oldest give way.", ge=1, le=32)
    ] = 4
    values: Annotated[
        bool, meaning("Keep the first 64 values of each tensor, too. Takes the role admin.")
    ] = False


class SamplingView(msgspec.Struct, frozen=True):
    """A model whose requests are kept, or were: then they can be found for an hour more."""

    model: str
    active: bool
    percent: float
    max_bytes: int
    values: bool
    by: str
    until: Moment
    kept: int
    taken: int
    size_bytes: int


class SampleView(msgspec.Struct, frozen=True):
    """One request. `state`: ok, failed, refused, cancelled; `status` the HTTP status that says it,
    0 where nobody waited. `inputs` and `outputs`: each tensor's name, datatype, shape, size and
    statistics of its first 4,096 elements; its first values where they are kept."""

    id: str
    at: Moment
    model: str
    version: int
    arm: str
    principal: str
    state: str
    status: int
    error: str
    took_s: float
    rows: int
    streamed: bool
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]


async def list_(call: AuthorizedCall) -> EndpointResult:
    query = SamplesQuery(
        call.query.get("model", ""), call.query.get("id", ""), call.paging()["limit"]
    )
    found = samples_in(await call.services.ask_gateway(query))
    return from_page(Page(tuple(map(_sample, found))))


async def standing(call: AuthorizedCall) -> EndpointResult:
    found: SamplingState = await call.services.ask_gateway(SamplingQuery())
    return from_page(Page(tuple(map(_sampling, found.models))))


async def start(call: AuthorizedCall) -> EndpointResult:
    terms, model = call.given(SamplingTerms), call.path["model"]
    if terms.values:
        call.require(Action.ADMIN)
    query = StartSampling(
        model=model,
        seconds=terms.minutes * 60.0,
        percent=terms.percent,
        max_bytes=terms.max_mib * MIB,
        values=terms.values,
        by=call.principal.id,
    )
    after = {"minutes": terms.minutes, "percent": terms.percent, "values": terms.values}
    await to_thread.run_sync(_check_known, call, model, limiter=call.services.threads)
    await _noted(call, "sampling.started", after)
    found: SamplingState = await call.services.ask_gateway(query)
    if found.problem:
        raise Conflict(found.problem)
    state = next(one for one in found.models if one.model == model)
    return EndpointResult(_sampling(state))


async def stop(call: AuthorizedCall) -> EndpointResult:
    await call.services.ask_gateway(StopSampling(call.path["model"]))
    await _noted(call, "sampling.stopped", None)
    return NOTHING


def _check_known(call: AuthorizedCall, model: str) -> None:
    """Raises NotFound for a model that no server has ever told of: its name is mistyped."""
    with call.services.database.reading() as session:
        if not states(session, [model]):
            raise NotFound(
                f"no server has a model '{model[:150]}'; GET /api/v1/loads lists those there are"
            )


async def _noted(call: AuthorizedCall, action: str, after: Mapping[str, Any] | None) -> None:
    def note() -> None:
        with call.services.database.change(call.actor) as tx:
            tx.changed(action, f"model:{call.path['model']}"[:LONGEST_NAME], None, after)

    await to_thread.run_sync(note, limiter=call.services.threads)


def _sampling(state: SampledModelState) -> SamplingView:
    return SamplingView(**asdict_of(state) | {"until": _at(state.until)})


def _sample(sample: SampledRequest) -> SampleView:
    facts = asdict_of(sample) | {"at": _at(sample.at)}
    del facts["number"]
    return SampleView(**facts)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/samples",
        access=_LOOK,
        tag="Samples",
        summary="Sampled requests of this server, newest first",
        act=list_,
        list_of=SampleView,
        query=(
            Param("model", "Only of this model."),
            Param("id", "Only those whose request id begins so."),
        ),
    ),
    Operation(
        verb="GET",
        path="/sampling",
        access=Access(Action.OPERATE),
        tag="Samples",
        summary="Which models' requests are sampled by this server, and until when",
        act=standing,
        list_of=SamplingView,
    ),
    Operation(
        verb="PUT",
        path=_PATH,
        access=_LOOK,
        tag="Samples",
        summary="Sample a model's requests for a while: shapes and statistics, no values",
        act=start,
        takes=SamplingTerms,
        gives=SamplingView,
    ),
    Operation(
        verb="DELETE",
        path=_PATH,
        access=_LOOK,
        tag="Samples",
        summary="Stop sampling a model; kept samples can be read for an hour",
        act=stop,
        status=204,
    ),
)
