"""What is wrong now, and what an operator acknowledges of it."""

from typing import Annotated

from anyio import to_thread

from control.access.scopes import Action
from control.api.body_fields import ApiBody, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation
from control.api.responses import page_of
from control.gateways.link import GatewayUnreachable
from control.gateways.queries import CrashQuery, CrashReport, VersionCrashes
from control.problems.service import (
    LONGEST_NOTE,
    acknowledge,
    find_problem,
    list_problems,
    take_back,
)
from control.problems.views import ProblemView

_PATH = "/problems/{problem}/acknowledgement"
_CHANGE = Access(Action.OPERATE)


class AcknowledgeTerms(ApiBody, frozen=True):
    note: Annotated[
        str,
        meaning(
            "What is known of it, or done about it.",
            max_length=LONGEST_NOTE,
            examples=["rolled back, see #12"],
        ),
    ]


async def list_(call: AuthorizedCall) -> EndpointResult:
    rows = await _listed(call)
    order = {one.key: number for number, one in enumerate(rows)}
    return page_of(call, rows, lambda one: f"{order[one.key]:06}")


async def acknowledge_(call: AuthorizedCall) -> EndpointResult:
    problem = find_problem(await _listed(call), call.path["problem"])

    def change() -> None:
        with call.services.database.change(call.actor) as tx:
            acknowledge(tx, problem, call.given(AcknowledgeTerms).note)

    await to_thread.run_sync(change, limiter=call.services.threads)
    rows = await _listed(call)
    return EndpointResult(next((one for one in rows if _shares(one, problem)), problem))


def _shares(one: ProblemView, other: ProblemView) -> bool:
    """Rows are others once they are acknowledged."""
    return not set(one.members).isdisjoint(other.members)


async def take_back_(call: AuthorizedCall) -> EndpointResult:
    problem = find_problem(await _listed(call), call.path["problem"])

    def change() -> None:
        with call.services.database.change(call.actor) as tx:
            take_back(tx, problem)

    await to_thread.run_sync(change, limiter=call.services.threads)
    return NOTHING


async def _listed(call: AuthorizedCall) -> list[ProblemView]:
    """While this server's gateway does not answer, nothing is known of its workers."""
    crashes: tuple[VersionCrashes, ...] = ()
    try:
        found: CrashReport = await call.services.ask_gateway(CrashQuery())
        crashes = found.items
    except GatewayUnreachable:
        pass
    services = call.services

    def read() -> list[ProblemView]:
        with services.database.reading() as session:
            server, trouble = services.facts.server_id, services.database.problem
            return list_problems(session, call.now, crashes, server, trouble)

    return await to_thread.run_sync(read, limiter=services.threads)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/problems",
        access=Access(Action.READ),
        tag="Problems",
        summary="What is wrong now, the worst first; those with one reason are one",
        act=list_,
        list_of=ProblemView,
    ),
    Operation(
        verb="PUT",
        path=_PATH,
        access=_CHANGE,
        tag="Problems",
        summary="Acknowledge a problem with a note, until it is another one",
        act=acknowledge_,
        takes=AcknowledgeTerms,
        gives=ProblemView,
    ),
    Operation(
        verb="DELETE",
        path=_PATH,
        access=_CHANGE,
        tag="Problems",
        summary="Take an acknowledgement back",
        act=take_back_,
        status=204,
    ),
)
