"""What a request to a route would get, and why: the API's view, and the seam to the routing that
only a gateway's code knows. Pure."""

from collections.abc import Callable, Mapping

import msgspec

from control.desired import DesiredRoute


class RouteExplanation(msgspec.Struct, frozen=True):
    """`arm`, `model` and `version` are null where each request is drawn anew; `bucket` is null
    where no bucket was looked at. `label` is what the response would say."""

    arm: str | None
    model: str | None
    version: int | None
    bucket: int | None
    label: str | None
    reason: str


ExplainRoute = Callable[
    [DesiredRoute, Mapping[str, Mapping[str, int]], str, Mapping[str, str]], RouteExplanation
]
"""Takes a route, the versions of aliases (model → alias → version), the request's unit ("" for
none) and its headers by name in lower case."""
