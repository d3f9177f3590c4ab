"""What a gateway counted since it was last asked, of every version, arm and the server itself.

The counters only grow, but for samples of latencies, which are taken: the differences are worked
out here. A version that was unloaded meanwhile is asked once more for what it counted last.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from control.rollouts.arms import ArmTotals
from control.series.points import (
    LanguagePoint,
    Latencies,
    SequencePoint,
    SeriesPoint,
    SeriesSubject,
    StepPoint,
    SubjectPoint,
    pack_latencies,
    side_by_side,
)
from schedulers.counters import Counters, SequenceCounters, StepCounters, TokenCounters
from schedulers.latency_samples import LatencySamples
from server.routing.arm_counters import ArmCounters
from server.routing.table import Key
from server.routing.worker_monitor import resident_of
from server.served_version import ServedVersion

SERVER = SeriesSubject("server")


class _Marks(NamedTuple):
    """What a version had counted when it was last asked."""

    success: int = 0
    failed: tuple[tuple[str, int], ...] = ()
    queue_ns: int = 0
    compute_ns: int = 0
    rows: int = 0
    batches: int = 0
    busy_ns: int = 0
    tokens: tuple[int, int, int] = (0, 0, 0)
    client_errors: int = 0
    sequences: tuple[int, int, int] = (0, 0, 0)


class _StepMarks(NamedTuple):
    """What a step of an ensemble had counted."""

    answered: int = 0
    failed: int = 0
    cancelled: int = 0
    rows: int = 0
    skipped: int = 0
    skipped_rows: int = 0
    queue_ns: int = 0
    total_ns: int = 0


class SeriesCollector:
    """On the loop's thread. `served`: what is loaded now; `arms`: of the table of routes; `lag_us`
    takes the longest delay of the loop."""

    def __init__(
        self,
        served: Callable[[], Iterable[ServedVersion]],
        arms: Callable[[], Iterable[tuple[Key, ArmCounters]]],
        lag_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self._served = served
        self._arms = arms
        self._lag_us = lag_us
        self._versions: dict[ServedVersion, _Marks] = {}
        self._steps: dict[ServedVersion, list[_StepMarks]] = {}
        self._totals: dict[ArmCounters, ArmTotals] = {}

    def rows(self) -> Iterator[SubjectPoint | None]:
        """A row of each version and arm of which anything was counted, or that holds a worker, and
        the server's at the end; None where there is nothing to say. Each takes the loop some 50 µs:
        let requests go first between them."""
        points = []
        now = list(self._served())
        for served in {*now, *self._versions}:
            row = self._version(served)
            if row is not None:
                points.append(row.point)
            yield row
        self._versions = {one: self._versions[one] for one in now}
        self._steps = {one: self._steps[one] for one in now if one in self._steps}
        current = list(self._arms())
        for key, counters in current:
            yield self._arm(key, counters)
        self._totals = {one: self._totals[one] for _, one in current if one in self._totals}
        total = side_by_side(points)
        yield SubjectPoint(SERVER, _server(total, self._lag_us()))

    def _version(self, served: ServedVersion) -> SubjectPoint | None:
        counters = served.counters
        before, after = self._versions.get(served, _Marks()), _marks(counters)
        self._versions[served] = after
        pids = [pid for one in served.instances if (pid := getattr(one, "pid", None))]
        live = counters.sequences.live if counters.sequences is not None else 0
        if before == after and not (counters.pending or pids or live):
            return None
        subject = SeriesSubject("version", served.version.name, served.version.number)
        point = _point(served, before, after, sum(map(resident_of, pids)))
        return SubjectPoint(subject, replace(point, steps=self._steps_of(served)))

    def _steps_of(self, served: ServedVersion) -> dict[str, StepPoint] | None:
        """Those of an ensemble of which anything was counted."""
        steps = served.counters.steps
        if not steps:
            return None
        before = self._steps.get(served) or [_StepMarks()] * len(steps)
        after = self._steps[served] = [_step_marks(one) for one in steps]
        return {
            f"{step.number}:{step.model}": _step_point(step, then, now)
            for step, then, now in zip(steps, before, after, strict=True)
            if then != now
        } or None

    def _arm(self, key: Key, counters: ArmCounters) -> SubjectPoint | None:
        before = self._totals.get(counters, ArmTotals())
        if before.counts.requests == counters.requests:
            return None
        after = self._totals[counters] = counters.totals()
        new = after.since(before)
        failed = {"FAILED": new.counts.errors} if new.counts.errors else {}
        route, _, arm, _, _, copies = key
        subject = SeriesSubject("mirror" if copies else "arm", route, 0, arm)
        succeeded = new.counts.requests - new.counts.errors
        latency = pack_latencies(new.latency)
        return SubjectPoint(subject, SeriesPoint(succeeded, failed, latency))


def _marks(counters: Counters) -> _Marks:
    tokens = counters.tokens
    batches = counters.batches.values()
    return _Marks(
        counters.success,
        tuple(counters.failure.items()),
        counters.queue_ns,
        counters.input_ns + counters.infer_ns + counters.output_ns,
        counters.inferences,
        counters.executions,
        sum(one.input_ns + one.infer_ns + one.output_ns for one in batches),
        (0, 0, 0)
        if tokens is None
        else (tokens.prompt_tokens, tokens.generated_tokens, tokens.prefix_hit_tokens),
        counters.client_errors,
        (0, 0, 0)
        if (sequences := counters.sequences) is None
        else (sequences.started, sequences.expired, sequences.lost),
    )


def _step_marks(step: StepCounters) -> _StepMarks:
    return _StepMarks(
        step.answered,
        step.failed,
        step.cancelled,
        step.rows,
        step.skipped,
        step.skipped_rows,
        step.queue_ns,
        step.total_ns,
    )


def _step_point(step: StepCounters, before: _StepMarks, after: _StepMarks) -> StepPoint:
    new = _StepMarks(*(now - then for now, then in zip(after, before, strict=True)))
    return StepPoint(
        new.answered,
        new.failed,
        new.cancelled,
        _taken(step.samples),
        new.queue_ns // 1000,
        (new.total_ns - new.queue_ns) // 1000,
        new.rows,
        new.skipped,
        new.skipped_rows,
    )


def _point(served: ServedVersion, before: _Marks, after: _Marks, memory: int) -> SeriesPoint:
    counters = served.counters
    earlier = dict(before.failed)
    failed = {
        reason: new for reason, count in after.failed if (new := count - earlier.get(reason, 0))
    }
    return SeriesPoint(
        after.success - before.success,
        failed,
        _taken(counters.samples),
        (after.queue_ns - before.queue_ns) // 1000,
        (after.compute_ns - before.compute_ns) // 1000,
        after.rows - before.rows,
        after.batches - before.batches,
        (after.busy_ns - before.busy_ns) // 1000,
        counters.pending,
        sum(one.ready for one in served.instances),
        memory,
        None if counters.tokens is None else _language(counters.tokens, before, after),
        client_errors=after.client_errors - before.client_errors,
        sequences=None
        if counters.sequences is None
        else _sequences(counters.sequences, before, after),
    )


def _sequences(counters: SequenceCounters, before: _Marks, after: _Marks) -> SequencePoint:
    new = [max(0, now - then) for now, then in zip(after.sequences, before.sequences, strict=True)]
    return SequencePoint(
        counters.live,
        counters.backlog,
        counters.slots,
        round(counters.oldest_s * 1000),
        counters.state_bytes(),
        *new,
    )


def _language(tokens: TokenCounters, before: _Marks, after: _Marks) -> LanguagePoint:
    prompt, generated, hits = (
        max(0, now - then) for now, then in zip(after.tokens, before.tokens, strict=True)
    )
    blocks = tokens.blocks_in_use + tokens.blocks_cached + tokens.blocks_empty
    return LanguagePoint(
        prompt,
        generated,
        hits,
        _taken(tokens.first_token_samples),
        _taken(tokens.between_tokens_samples),
        tokens.running,
        tokens.waiting,
        tokens.blocks_in_use / blocks if blocks else 0.0,
    )


def _taken(samples: LatencySamples) -> Latencies:
    taken = samples.take()
    return () if taken is None else pack_latencies(taken)


def _server(total: SeriesPoint, lag_us: int) -> SeriesPoint:
    """All of its versions; the memory is its own process's and its workers'."""
    return SeriesPoint(
        total.succeeded,
        total.failed,
        total.latency,
        total.queue_us,
        total.compute_us,
        total.rows,
        total.batches,
        total.busy_us,
        total.pending,
        total.instances,
        total.memory_bytes + resident_of(os.getpid()),
        total.language,
        lag_us,
        total.client_errors,
    )
