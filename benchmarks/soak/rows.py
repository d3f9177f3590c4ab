"""The rows of a soak's file, and the runs they belong to. Pure.

A run begins with its `start` row. `minute`: what became of the requests that ended in it. `sample`:
every process and what it holds, every ten seconds. `event`, `slow`, `wrong`: one each.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Weight:
    """One process: its role, PSS and RSS in KiB, open descriptors, threads, CPU seconds so far."""

    pid: int
    role: str
    pss: int
    rss: int
    files: int
    threads: int
    cpu: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """`at`: seconds since the run's start; `shm`: pieces of shared memory that
    are open in any of them, `shm_kib` their size; `state`: KiB of the state folder."""

    at: float
    processes: tuple[Weight, ...]
    shm: int = 0
    shm_kib: int = 0
    state: int = 0


@dataclass(frozen=True, slots=True)
class Minute:
    """`outcomes`, `latency`: by kind of request; `longest` of a kind in seconds. `late`: the most
    that a sleep of the load's own was late, in seconds: its latencies are no better than that."""

    number: int
    at: float
    outcomes: dict[str, dict[str, int]]
    latency: dict[str, dict[str, int]]
    longest: dict[str, float]
    refusals: dict[str, int] = field(default_factory=dict)
    late: float = 0.0
    busy: float = 0.0
    own_cpu: float = 0.0
    probe: float = 0.0


@dataclass(slots=True)
class Run:
    """What one server went through; `end` is empty where it was interrupted."""

    start: dict[str, Any]
    minutes: list[Minute] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    slow: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)


def line_of(kind: str, row: Any) -> str:
    """A line of the file."""
    return json.dumps({"row": kind, **(row if isinstance(row, dict) else asdict(row))})


def runs_of(lines: Iterable[str]) -> list[Run]:
    """The runs of a file; a last line that was cut off is left out."""
    found: list[Run] = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        _add(found, row.pop("row"), row)
    return found


def _add(runs: list[Run], kind: str, row: dict[str, Any]) -> None:
    if kind == "start":
        runs.append(Run(row))
    elif not runs:
        raise ValueError(f"the file begins with a row '{kind}' instead of a start")
    elif kind == "minute":
        runs[-1].minutes.append(Minute(**row))
    elif kind == "sample":
        row["processes"] = tuple(Weight(**one) for one in row["processes"])
        runs[-1].samples.append(Sample(**row))
    elif kind == "end":
        runs[-1].end = row
    else:
        getattr(runs[-1], {"event": "events"}.get(kind, kind)).append(row)


def totals(minutes: Sequence[Minute]) -> dict[str, dict[str, int]]:
    """Kind → outcome → requests."""
    found: dict[str, dict[str, int]] = {}
    for minute in minutes:
        for kind, outcomes in minute.outcomes.items():
            row = found.setdefault(kind, {})
            for outcome, count in outcomes.items():
                row[outcome] = row.get(outcome, 0) + count
    return found
