"""How long an execution may go on without progress, how much memory a worker may take, and who set
that. Pure."""

import math
import re
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

MEMORY_PARAMETER = "memory_limit"
MEMORY_SETTING = "--worker-memory-limit"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)


class MemoryLimit(NamedTuple):
    """Bytes that a worker may take with the processes it starts, 0 for no limit; `source`: what to
    change to change it."""

    size: int = 0
    source: str = MEMORY_SETTING

    def __str__(self) -> str:
        return f"{self.source}={self.size}"


NO_MEMORY_LIMIT = MemoryLimit()


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


def read_bytes(text: str) -> int:
    """Bytes of "800MiB", "4 GB" (binary as well) or "1000000"; 0 for what is no size."""
    found = _SIZE.fullmatch(text.strip())
    return int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0


def memory_limit(version: ModelVersion, default_bytes: int) -> MemoryLimit:
    """The limit of a version's workers: its config's or `default_bytes` of the server's setting,
    0 for none; the lower one.

    Raises LoadFailed for a parameter that is no size.
    """
    if MEMORY_PARAMETER not in version.config.parameters:
        return MemoryLimit(default_bytes)
    text = version.config.parameters[MEMORY_PARAMETER].string_value
    size = read_bytes(text)
    if size < 1:
        raise LoadFailed(
            f"model '{version.name}' version {version.number}: parameter {MEMORY_PARAMETER} is "
            f"'{text:.80}'; it must be a number of bytes such as 800MiB or 4GiB"
        )
    if 0 < default_bytes <= size:
        return MemoryLimit(default_bytes)
    return MemoryLimit(size, f"parameter {MEMORY_PARAMETER}")
