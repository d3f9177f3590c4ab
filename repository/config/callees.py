"""Whom a model's scripts may call by the permission to use the model itself. Pure.

`server.bls` grants it; `control.git.push` asks whether who publishes the model may use them too.
"""

from typing import Any

PARAMETER = "calls"
"""The parameter of a config that lists them, separated by commas."""


def callees_in(parameters: Any) -> frozenset[str]:
    """The names that a config's `parameters` list; none where it lists none."""
    if PARAMETER not in parameters:
        return frozenset()
    names = parameters[PARAMETER].string_value.split(",")
    return frozenset(name.strip() for name in names if name.strip())


def covers(callees: frozenset[str], name: str) -> bool:
    """Whether `name`, which may be MODEL@ALIAS, is of one of the callees."""
    return name in callees or ("@" in name and name.rpartition("@")[0] in callees)
