"""Whom a model may call by the permission to use the model itself. Pure.

`server.bls` and `schedulers.ensembles` grant it; `control.git.push` asks whether who publishes the
model may use them too.
"""

from typing import Any

from repository.model import ModelConfig

PARAMETER = "calls"
"""The parameter of a config that lists them, separated by commas."""


def callees_in(parameters: Any) -> frozenset[str]:
    """The names that a config's `parameters` list; none where it lists none."""
    if PARAMETER not in parameters:
        return frozenset()
    names = parameters[PARAMETER].string_value.split(",")
    return frozenset(name.strip() for name in names if name.strip())


def all_callees(config: ModelConfig) -> frozenset[str]:
    """Those that the parameter lists, and the models of an ensemble's steps."""
    steps = config.ensemble_scheduling.step
    return callees_in(config.parameters) | {step.model_name for step in steps if step.model_name}


def covers(callees: frozenset[str], name: str) -> bool:
    """Whether `name`, which may be MODEL@ALIAS, is of one of the callees."""
    return name in callees or ("@" in name and name.rpartition("@")[0] in callees)
