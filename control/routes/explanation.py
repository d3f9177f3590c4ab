"""The seam to the routing that only a gateway's code knows: what a request to a route would get,
and why. Pure."""

from collections.abc import Callable, Mapping

from control.desired import DesiredRoute
from control.views import Explanation

ExplainRoute = Callable[
    [DesiredRoute, Mapping[str, Mapping[str, int]], str, Mapping[str, str]], Explanation
]
"""Takes a route, the versions of aliases (model → alias → version), the request's unit ("" for
none) and its headers by name in lower case."""
