"""Time series of what was served, for charts and for who wants the numbers."""

from datetime import UTC, datetime, timedelta

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.http_errors import MalformedRequest
from control.series import views
from control.series.reading import (
    as_one_point,
    range_of,
    steps_of_one_point,
    with_open_point,
)
from control.series.selection import GROUPINGS, SERVED, SeriesSelection
from control.series.storage import storage
from control.series.views import SeriesPage, SeriesStorageView, view_of

USUAL_POINTS, MOST_POINTS = 200, 1_000
USUAL_RANGE = timedelta(hours=1)
LONGEST_RANGE = timedelta(days=60)
MOST_SERIES, MOST_SINGLE_POINTS = 50, 5_000
"""In one answer: those with the most requests; of one point each."""


def list_(call: AuthorizedCall) -> EndpointResult:
    """Points of equal steps; null where nothing was counted."""
    query = call.query
    by = query.get("by") or _usual(call)
    if by not in GROUPINGS:
        raise MalformedRequest(f"by is '{by:.40}'; it is one of {', '.join(GROUPINGS)}", "by")
    selection = SeriesSelection(by, _about(call, by), query.get("version"))
    since, until = range_asked_for(call)
    now = int(call.now.timestamp())
    points = min(query.get("points") or USUAL_POINTS, MOST_POINTS)
    single = points < 2
    first, end = int(since.timestamp()), int(until.timestamp())
    steps = steps_of_one_point(end - first, MOST_POINTS) if single else points
    within, open_s = range_of(first, end, now, steps), 0
    if not single:
        within, open_s = with_open_point(within, end)
    call.services.series.write_held()
    with call.services.database.reading() as session:
        found = call.services.series.read(session, within, selection, query.get("server", ""))
    if single:
        within, found = as_one_point(within, found)
    starts = within.starts
    served = found.get("server", {}) if by == "server" else found.pop(SERVED, {})
    busiest = sorted(
        found, key=lambda name: -sum(one.succeeded + one.failures for one in found[name].values())
    )[: MOST_SINGLE_POINTS if single else MOST_SERIES]
    return EndpointResult(
        SeriesPage(
            since=moment(within.since),
            until=moment(within.until),
            step_s=within.step_s,
            at=[moment(at) for at in starts],
            items=[
                views.with_open_point(view, within.step_s, open_s) if open_s else view
                for name in sorted(busiest)
                for view in [view_of(name, found[name], starts, within.step_s, served.keys())]
            ],
        )
    )


def _usual(call: AuthorizedCall) -> str:
    if call.query.get("route"):
        return "arm"
    return "version" if call.query.get("model") else "model"


def _about(call: AuthorizedCall, by: str) -> str:
    """The name of the model or route; "" for all. Raises MalformedRequest for what does not go
    together."""
    model, route = call.query.get("model", ""), call.query.get("route", "")
    of_routes = by in ("arm", "mirror")
    if of_routes and not route:
        raise MalformedRequest(f"by={by} needs a route", "route")
    if by == "version" and not model:
        raise MalformedRequest("by=version needs a model", "model")
    if (route and not of_routes) or (model and by not in ("model", "version")):
        raise MalformedRequest(f"by={by} does not go with {'route' if route else 'model'}", "by")
    return str(route if of_routes else model)


def range_asked_for(call: AuthorizedCall) -> tuple[datetime, datetime]:
    """`since` and `until` of the query. Raises MalformedRequest."""
    until = call.query.get("until") or call.now
    since = call.query.get("since") or until - USUAL_RANGE
    if not timedelta() < until - since <= LONGEST_RANGE:
        raise MalformedRequest("since lies before until, by 60 days at most", "since")
    return since, until


def moment(at: int) -> datetime:
    """Of seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC)


def room(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        found = storage(session)
    oldest = None if found.oldest is None else moment(found.oldest)
    limit = call.services.facts.series_limit
    return EndpointResult(SeriesStorageView(found.size_bytes, limit, oldest))


OPERATIONS = (
    Operation(
        verb="GET",
        path="/series/storage",
        access=Access(Action.READ),
        tag="Series",
        run=room,
        summary="How much room time series take in the database, of how much",
        gives=SeriesStorageView,
    ),
    Operation(
        verb="GET",
        path="/series",
        access=Access(Action.READ),
        tag="Series",
        run=list_,
        summary="Time series: requests, errors, latency, queue, memory, tokens",
        query=(
            Param("model", "Of this model's versions."),
            Param("version", "Of this version of the model alone.", int),
            Param("route", "Of this route's arms."),
            Param("by", "A series for each of these.", schema={"enum": [*GROUPINGS]}),
            Param("server", "Of this server alone; else of all together."),
            Param("since", "From this moment on; an hour before `until` by default.", datetime),
            Param("until", "Before this moment; now by default.", datetime),
            Param("points", f"How many points about, {MOST_POINTS} at most; 1: of all of it.", int),
        ),
        gives=SeriesPage,
    ),
)
