"""The rate limiter: whether executions wait for resources, and how many there are. Part of
`Settings`; the values are Triton's."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from schedulers.policy.resource_limits import EVERY_DEVICE, Resource
from server.settings.kinds import ValueKind, choice, setting
from server.settings.sandbox import SandboxSettings

_ROW = re.compile(r"([^:\s][^:]*):([0-9]{1,9})(?::([0-9]{1,3}))?")


def _read(text: str) -> str:
    if _ROW.fullmatch(text) is None:
        raise ValueError
    return text


RESOURCE = ValueKind(
    "NAME:COUNT[:DEVICE]",
    "a name, a count and, for the resource of one device, its number, as in R1:10 or R1:10:0",
    _read,
    (str,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSettings(SandboxSettings):
    """What executions wait for beside cores; docs/instances.md has it all."""

    rate_limit: str = setting(
        "Limits",
        choice("off", "execution_count"),
        "off",
        "Whether executions wait for the resources of their model's rate_limiter, as in Triton; "
        "see docs/instances.md.",
    )
    rate_limit_resource: tuple[str, ...] = setting(
        "Limits",
        RESOURCE,
        (),
        "How many copies of a resource there are, on each device or on one; repeat it for "
        "several. Once one is given, a resource that is not named has none.",
        note="as many as the instance that needs most",
        repeat=True,
    )


def resource_counts(given: Iterable[str]) -> dict[Resource, int]:
    """Copies by resource; of one that is given twice, the last."""
    found: dict[Resource, int] = {}
    for text in given:
        row = _ROW.fullmatch(text)
        if row is None:
            raise ValueError(f"'{text}' is not {RESOURCE.allowed}")
        found[Resource(row[1], int(row[3]) if row[3] else EVERY_DEVICE)] = int(row[2])
    return found
