"""Routes over REST: what a request's headers and parameters say of its unit, and who answers.

`server.rest.infer` and `server.rest.generate` come here for names that are a route's.
"""

from collections.abc import Callable

from server.dataplane import DataPlane
from server.rest.envelope import Headers
from server.routing.routing import labels_of, unit_of
from server.routing.table import HEADER_NAME, Route, Target
from server.routing.trials import STAMP_NAME


def picked(
    dataplane: DataPlane,
    route: Route,
    headers: Headers,
    principal: str | None,
    parameter: Callable[[str], object] | None,
) -> Target:
    """`parameter` reads one of the request's parameters; None will do where the route's
    `parameter` is empty."""
    if route.unit_header:
        return dataplane.routing.by_header(route, headers)
    if not route.asks:
        return dataplane.routing.draw(route)
    labels, wanted = labels_of(route, headers), route.parameter
    found = parameter(wanted) if wanted and parameter is not None else None
    unit = unit_of(route, labels, principal, found)
    return dataplane.routing.pick(route, unit, labels)


def arm_headers(target: Target) -> dict[str, str]:
    """What a response's head says of who answered."""
    stamp = {STAMP_NAME: target.stamp} if target.stamp else {}
    return {HEADER_NAME: target.label, **stamp}
