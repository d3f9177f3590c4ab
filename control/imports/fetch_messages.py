"""What an importer and the process that fetches say to each other: one JSON object per line."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from repository.sources.limits import FetchLimits
from repository.sources.progress import Progress


@dataclass(frozen=True, slots=True)
class FetchCommand:
    """What to fetch, told on stdin. `folder` is that import's alone; `digest` "" for any.

    `parent`: the importer's process id; without it nobody waits for the result.
    """

    url: str
    allowed: tuple[str, ...]
    folder: str
    digest: str
    limits: FetchLimits
    parent: int


@dataclass(frozen=True, slots=True)
class FetchSucceeded:
    """It lies in the folder `whole`, and has this digest."""

    digest: str


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """It cannot be had; `reason` is meant for who gave the URL."""

    reason: str


Said = Progress | FetchSucceeded | FetchRefused

_KINDS: dict[str, type[Said]] = {
    "progress": Progress,
    "done": FetchSucceeded,
    "refused": FetchRefused,
}


def pack_order(order: FetchCommand) -> bytes:
    return json.dumps(asdict(order)).encode()


def read_order(raw: bytes) -> FetchCommand:
    found: dict[str, Any] = json.loads(raw)
    limits, allowed = FetchLimits(**found.pop("limits")), tuple(found.pop("allowed"))
    return FetchCommand(**found, limits=limits, allowed=allowed)


def pack_said(said: Said) -> bytes:
    """A line."""
    kind = next(name for name, each in _KINDS.items() if isinstance(said, each))
    return json.dumps([kind, asdict(said)]).encode() + b"\n"


def read_said(line: bytes) -> Said:
    kind, fields = json.loads(line)
    return _KINDS[kind](**fields)
