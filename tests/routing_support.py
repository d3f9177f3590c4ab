"""Routes for tests of the gateway's side: `route(("stable", 1, 99), ("candidate", 2, 1))`."""

from typing import Any

from control.desired import Arm, Route

Described = tuple[str, int, float]
"""An arm's name, its version of the model, its weight in percent."""


def route(*arms: Described, name: str = "numbers", model: str = "digits", **rest: Any) -> Route:
    made = tuple(Arm(arm, model, version, "", round(w * 100)) for arm, version, w in arms)
    return Route(name, made, **{"salt": "salt", "unit": "header:x-user", **rest})


def halves(**rest: Any) -> Route:
    return route(("stable", 1, 50), ("candidate", 2, 50), **rest)
