"""How long an execution may go on without progress, and who set that. Pure."""

import math
from typing import NamedTuple

from backends.errors import LoadFailed
from repository.model import ModelVersion

PARAMETER = "execute_timeout_secs"
"""The parameter of a model's config that stands in for the server's setting."""

SETTING = "--model-execute-timeout-secs"


class ExecutionLimit(NamedTuple):
    """`secs` without progress, 0 for no limit; `source`: what to change to change it."""

    secs: float = 0.0
    source: str = SETTING

    def __str__(self) -> str:
        return f"{self.source}={self.secs:g}"


NO_LIMIT = ExecutionLimit()


def execution_limit(version: ModelVersion, default_secs: float) -> ExecutionLimit:
    """The limit of a version: its config's, or `default_secs` of the server's setting.

    Raises LoadFailed for a parameter that is no number of seconds.
    """
    if PARAMETER not in version.config.parameters:
        return ExecutionLimit(default_secs)
    text = version.config.parameters[PARAMETER].string_value
    try:
        secs = float(text)
    except ValueError:
        secs = math.nan
    if not 0 <= secs < math.inf:
        raise LoadFailed(
            f"model '{version.name}' version {version.number}: parameter {PARAMETER} is "
            f"'{text:.80}'; it must be a number of seconds from 0 (no limit) up"
        )
    return ExecutionLimit(secs, f"parameter {PARAMETER}")
