"""What a run found, and how it is shown: one table, the figures, the targets, the notes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.load import Sample
from benchmarks.rounds import Row, Spread


class Figure(NamedTuple):
    """One number that is not a load: seconds, megabytes."""

    name: str
    value: float
    unit: str


class Check(NamedTuple):
    """One target: what was measured, what was asked for; `met` is None when not measured. `sure` is
    False where what was measured is known no better than to leave that open."""

    name: str
    measured: str
    target: str
    met: bool | None
    sure: bool = True


class Added(NamedTuple):
    """CPU-µs per request that `peer` takes above `base`, which was measured beside it in each of
    `pairs` bursts; `base_us` is the median of what that takes."""

    wire: str
    peer: str
    base: str
    pairs: int
    base_us: float
    us: Spread


class Ratio(NamedTuple):
    """How many times as much CPU (of all processes) and time a request of `peer` takes as one of
    `base`, which was measured beside it in each of `pairs` bursts; `base_us` is the median of the
    CPU-µs that that takes."""

    scenario: str
    wire: str
    concurrency: int
    peer: str
    base: str
    pairs: int
    base_us: float
    cpu: Spread
    wall: Spread


@dataclass
class Report:
    """Everything measured so far. `notes`: who is missing and why; `failures`: what went wrong."""

    rows: list[Row] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def find(self, scenario: str, peer: str, wire: str, concurrency: int) -> Sample | None:
        """The medians of one contest, or None when it did not take place."""
        for row in self.rows:
            if row[:4] == (scenario, peer, wire, concurrency):
                return row.sample
        return None

    def ratio(self, scenario: str, wire: str, concurrency: int, peer: str) -> Ratio | None:
        """What a pair found, or None when it was not measured."""
        for one in self.ratios:
            if one[:4] == (scenario, wire, concurrency, peer):
                return one
        return None

    def figure(self, name: str) -> float | None:
        """A figure by its name, or None when it was not taken."""
        return next((figure.value for figure in self.figures if figure.name == name), None)


LOAD_HEAD = (
    *("scenario", "peer", "wire", "conc.", "req/s", "p50 ms", "p99 ms", "worst ms"),
    *("CPU-µs/req", "load's CPU-µs/req", "idle cores"),
)
RATIO_HEAD = ("scenario", "kind", "beside", "wire", "conc.", "pairs", "its CPU-µs", "CPU", "time")
CHECK_HEAD = ("target", "measured", "asked for", "")


def markdown(report: Report, checks: Sequence[Check]) -> str:
    """The whole report; its tables are aligned, so that it reads as well in a terminal."""
    parts = []
    if report.rows:
        parts.append(_table(LOAD_HEAD, (_load_cells(row) for row in report.rows)))
    if report.ratios:
        parts.append(_table(RATIO_HEAD, (_ratio_cells(one) for one in report.ratios)))
    if report.figures:
        cells = ((each.name, _short(each.value), each.unit) for each in report.figures)
        parts.append(_table(("memory and start-up", "measured", "unit"), cells))
    parts.append(_table(CHECK_HEAD, (_check_cells(check) for check in checks)))
    parts.extend(f"Not measured: {note}" for note in report.notes)
    parts.extend(f"FAILED: {failure}" for failure in report.failures)
    return "\n\n".join(parts) + "\n"


def as_json(report: Report, checks: Sequence[Check]) -> dict[str, object]:
    """The same as data; a number that makes no sense for a row is null."""
    rows = [
        {**row._asdict(), "sample": {k: _number(v) for k, v in row.sample._asdict().items()}}
        for row in report.rows
    ]
    return {
        "rows": rows,
        "added": [
            {**one._asdict(), "us": {k: _finite(v) for k, v in one.us._asdict().items()}}
            for one in report.added
        ],
        "ratios": [
            {
                **one._asdict(),
                **{k: {n: _finite(v) for n, v in s._asdict().items()} for k, s in _spreads(one)},
            }
            for one in report.ratios
        ],
        "figures": [figure._asdict() for figure in report.figures],
        "checks": [check._asdict() for check in checks],
        "notes": report.notes,
        "failures": report.failures,
    }


def _short(value: float) -> str:
    return f"{value:.1f}" if value >= 1 or not value else f"{value:.2g}"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _load_cells(row: Row) -> tuple[str, ...]:
    sample = row.sample
    concurrency = str(row.concurrency) if row.concurrency else "–"
    numbers = (
        f"{sample.per_second:.0f}",
        f"{sample.p50_ms:.2f}",
        f"{sample.p99_ms:.2f}",
        _known(sample.worst_ms, ".1f"),
        _known(sample.cpu_us, ".0f"),
        _known(sample.load_cpu_us, ".0f"),
        _known(sample.idle_cores, ".2f"),
    )
    return (row.scenario, row.peer, row.wire, concurrency, *numbers)


def _known(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _spreads(one: Ratio) -> tuple[tuple[str, Spread], ...]:
    return ("cpu", one.cpu), ("wall", one.wall)


def _ratio_cells(one: Ratio) -> tuple[str, ...]:
    cpu, wall = (
        f"{each.middle:.2f} ({each.lower:.2f} to {each.upper:.2f})" for each in (one.cpu, one.wall)
    )
    who = (one.scenario, one.peer, one.base, one.wire, str(one.concurrency), str(one.pairs))
    return (*who, f"{one.base_us:.1f}", cpu, wall)


def _check_cells(check: Check) -> tuple[str, ...]:
    verdict = {True: "met", False: "MISSED", None: "not measured"}[check.met]
    return (check.name, check.measured, check.target, verdict + ("" if check.sure else "?"))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
