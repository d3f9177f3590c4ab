"""Which version answered a request: of the last ones of all servers' gateways, by their ids."""

from collections.abc import Iterator
from datetime import UTC, datetime

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.gateways.peers import ServerAnswers
from control.gateways.queries import AnsweredRequest, RequestsQuery
from control.http_errors import MalformedRequest
from control.views import RequestsView, RequestView, SilentServerView

USUAL, MOST = 100, 500
OUTCOMES = ("ok", "failed", "refused", "cancelled")
ORDERS = ("newest", "slowest")
LONGEST_TEXT = 255


async def list_(call: AuthorizedCall) -> EndpointResult:
    """Of the last 100,000 requests of each server, or of those of 15 minutes."""
    query = call.query
    since, until = query.get("since"), query.get("until")
    request_query = RequestsQuery(
        id=_text(call, "id"),
        model=_text(call, "model"),
        version=query.get("version", 0),
        arm=_text(call, "arm"),
        outcome=_one_of(call, "outcome", OUTCOMES),
        least_s=max(0, query.get("least_ms", 0)) / 1e3,
        since=None if since is None else since.timestamp(),
        until=None if until is None else until.timestamp(),
        slowest=_one_of(call, "order", ORDERS) == "slowest",
        limit=_limit(query.get("limit", USUAL)),
    )
    return EndpointResult(merged(await call.services.ask_servers(request_query), request_query))


def merged(found: ServerAnswers, query: RequestsQuery) -> RequestsView:
    """The first of all servers together, in the query's order. Pure."""

    def place(one: tuple[str, AnsweredRequest]) -> float:
        _, request = one
        return request.queue_s + request.compute_s if query.slowest else request.at

    first = sorted(_each(found), key=place, reverse=True)[: query.limit]
    return RequestsView(
        [_view(request, server) for server, request in first],
        sum(one.found for one in found.answers.values()),
        sum(one.kept for one in found.answers.values()),
        sorted(found.answers),
        [SilentServerView(server, why) for server, why in sorted(found.silent.items())],
    )


def _each(found: ServerAnswers) -> Iterator[tuple[str, AnsweredRequest]]:
    for server, answer in found.answers.items():
        for request in answer.items:
            yield server, request


def _text(call: AuthorizedCall, name: str) -> str:
    text: str = call.query.get(name, "")
    return text[:LONGEST_TEXT]


def _one_of(call: AuthorizedCall, name: str, values: tuple[str, ...]) -> str:
    text: str = call.query.get(name, "")
    if text and text not in values:
        raise MalformedRequest(f"{name} is '{text:.40}'; it is one of {', '.join(values)}", name)
    return text


def _limit(number: int) -> int:
    if not 1 <= number <= MOST:
        raise MalformedRequest(f"limit is a whole number from 1 to {MOST}, not {number}", "limit")
    return number


def _view(one: AnsweredRequest, server: str) -> RequestView:
    return RequestView(
        one.id,
        one.client_id,
        datetime.fromtimestamp(one.at, UTC),
        one.model,
        one.version,
        one.arm,
        one.instance,
        one.queue_s,
        one.compute_s,
        one.outcome,
        one.error,
        server,
    )


OPERATIONS = (
    Operation(
        verb="GET",
        path="/requests",
        access=Access(Action.OPERATE),
        tag="Requests",
        summary="Which version answered which request, the newest first",
        act=list_,
        gives=RequestsView,
        query=(
            Param("id", "Of the response's x-request-id, or what the client called its request."),
            Param("model", "Only of this model."),
            Param("version", "Only of this version.", int, {"minimum": 1, "maximum": 2**31 - 1}),
            Param("arm", "Only of this arm of a route."),
            Param("outcome", "Only with this outcome: ok, failed, refused or cancelled."),
            Param("least_ms", "Only those that took at least so many milliseconds.", int),
            Param("since", "Only those that came at this moment or later.", datetime),
            Param("until", "Only those that came before this moment.", datetime),
            Param("order", "newest, if not given, or slowest first."),
            Param("limit", f"At most so many; {USUAL} if not given.", int),
        ),
    ),
)
