"""Routes for tests of the gateway's side: `route(("stable", 1, 99), ("candidate", 2, 1))`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from control.access.scopes import Principal
from control.desired import DesiredArm, DesiredRoute
from schedulers.request import Sequence
from server.routing.routing import labels_of, unit_header_of
from server.routing.table import CompiledRoute as Compiled

Described = tuple[str, int, float]
"""An arm's name, its version of the model, its weight in percent."""


def route(
    *arms: Described, name: str = "numbers", model: str = "digits", **rest: Any
) -> DesiredRoute:
    made = tuple(DesiredArm(arm, model, version, "", round(w * 100)) for arm, version, w in arms)
    return DesiredRoute(name, made, **{"salt": "salt", "unit": "header:x-user", **rest})


def halves(**rest: Any) -> DesiredRoute:
    return route(("stable", 1, 50), ("candidate", 2, 50), **rest)


@dataclass
class Request:
    """What a route may ask of a request: see `server.routing.routing.RoutableRequest`."""

    headers: tuple[tuple[bytes, bytes], ...] = ()
    within: Sequence | None = None
    principal: Principal | None = None

    def unit_in_header(self, route: Compiled) -> str:
        return unit_header_of(route, self.headers)

    def labels(self, route: Compiled) -> Mapping[str, str]:
        return labels_of(route, self.headers)

    def parameter(self, name: str) -> object:
        return None

    def sequence(self) -> Sequence | None:
        return self.within
