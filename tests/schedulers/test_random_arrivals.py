"""Random arrivals, cancels, failures, deaths and resizes, played on every scheduler over threads of
its own: each request ends exactly once, with its own answer, and nothing is left behind."""

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from backends.errors import BackendError, ExecutionFailed, InstanceDied, Reschedule
from backends.seam import (
    SEQUENCE_START,
    Batch,
    BatchResult,
    Member,
    ResponsePart,
    ResponseSender,
    Result,
)
from schedulers.batching import BatchScheduler
from schedulers.counters import Counters
from schedulers.ensembles.policy.compile import CompiledEnsemble, compile_ensemble
from schedulers.ensembles.scheduler import EnsembleScheduler
from schedulers.ensembles.served_ensemble import ServedEnsemble, find_all
from schedulers.errors import SchedulingError
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from schedulers.policy.resource_limits import InstanceLimit, Resource, ResourceLimiter
from schedulers.policy.slots import SequenceRules
from schedulers.rate_limited import RateLimitedScheduler
from schedulers.reply import Reply
from schedulers.request import InferRequest
from schedulers.request import Sequence as Membership
from schedulers.seam import Scheduler
from schedulers.sequences.batcher import SequenceBatcher
from support.ensembles import SchedulerCaller, graph_of, signature

PATIENCE_S = 60
STEPS = 150
MOST_WAITING = 12
KINDS = [
    "batching",
    "ordered",
    "rate limiter",
    "decoupled",
    "direct",
    "oldest",
    "iterative",
    "decoupled iterative",
    "ensemble",
    "ensemble of a stream",
    "ensemble of groups",
]
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))]


class Erratic:
    """Answers X with X, and keeps of each sequence which requests it has executed: `before` has
    them by request. `how` makes a request fail, or take the instance with it; `runs` is how many
    executions it asks for: its parameters, or what `terms` has of it."""

    device, cores = "cpu", 1

    def __init__(
        self,
        before: dict[str, list[str]],
        streams: bool = False,
        terms: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        self._terms = terms
        self.ready, self.streams, self.deaths = True, streams, 0
        self.changed: Callable[[], None] = lambda: None
        self.closed = 0
        self._before = before
        self._states: dict[int, list[str]] = {}
        self._runs: dict[str, int] = {}
        self._busy = threading.Lock()

    def execute(self, batch: Batch) -> BatchResult:
        assert self._busy.acquire(blocking=False), "one execution at a time"
        try:
            return BatchResult(self._results(batch), 1, 2, 3)
        finally:
            self._busy.release()

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        for result, member, outlet in zip(
            self._results(batch), batch.members, outlets, strict=True
        ):
            if isinstance(result, Exception):
                outlet.send(ResponsePart(result, last=True))
                continue
            for _ in range(member.parameters["responses"]):
                outlet.send(ResponsePart(result))
            outlet.send(ResponsePart(None, last=True))
        return BatchResult([], 1, 2, 3)

    def _results(self, batch: Batch) -> list[Result]:
        assert self.ready
        assert not self.closed
        time.sleep(0.0002)
        if any(self._of(member, "how") == "dies" for member in batch.members):
            self._states.clear()
            self.deaths += 1
            self.ready = False
            self.changed()
            raise InstanceDied("it died")
        if any(self._of(member, "how") == "all fail" for member in batch.members):
            raise ExecutionFailed("all of them")
        if batch.sequences is None:
            return [self._one(member) for member in batch.members]
        for slot in batch.sequences.released:
            self._states.pop(slot, None)
        made: list[Result] = []
        for member, slot, flags in zip(
            batch.members, batch.sequences.slots, batch.sequences.flags, strict=True
        ):
            state = [] if flags & SEQUENCE_START else self._states[slot]
            result = self._one(member)
            made.append(result)
            if not isinstance(result, ExecutionFailed):
                self._before[member.id] = state
                self._states[slot] = [*state, member.id]
        return made

    def _one(self, member: Member) -> Result:
        if self._of(member, "how") == "fails":
            return ExecutionFailed("this one")
        runs = self._runs[member.id] = self._runs.get(member.id, 0) + 1
        return {"X": member.inputs["X"]} if runs >= self._of(member, "runs") else Reschedule()

    def _of(self, member: Member, name: str) -> Any:
        return (member.parameters or self._terms[member.id])[name]

    def revive(self) -> None:
        self.ready = True
        self.changed()

    def close(self) -> None:
        self.closed += 1


class Play:
    """One scheduler and what was asked of it."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.dice = kind, random.Random(f"{kind} {seed}")
        self.streams = kind in ("decoupled", "decoupled iterative", "ensemble of a stream")
        self.sequences = kind in ("direct", "oldest")
        self.iterative = "iterative" in kind
        self.grouped = kind == "ensemble of groups"
        self.before: dict[str, list[str]] = {}
        self.terms: dict[str, dict[str, Any]] = {}
        self.instances = [self._instance() for _ in range(2)]
        self.everyone = list(self.instances)
        self.counters, self.limiter = Counters(), ResourceLimiter()
        self.inner: Any = self._inner()
        self.scheduler: Scheduler = self.inner
        self.all_counters, self.behind = [self.counters], [self.inner]
        if "ensemble" in kind:
            self.scheduler = self._ensemble()
        self.asked: list[tuple[InferRequest, Reply]] = []
        self.ends: dict[str, int] = {}
        self.numbers = itertools.count(1)
        self.tasks: list[asyncio.Task[None]] = []

    def _instance(self) -> Erratic:
        return Erratic(self.before, self.streams, self.terms)

    def _inner(self) -> Any:
        merge = MergeRules(max_rows=4, preserve_order=self.kind == "ordered")
        queue = BatchQueue(QueuePolicy(max_size=MOST_WAITING), {}, 3, 2)
        common = (self.instances, self.counters, CoreTokens(2))
        if self.sequences or self.iterative:
            rules = SequenceRules(
                self.kind == "direct", 3, 20_000_000, MOST_WAITING, merge, iterative=self.iterative
            )
            return SequenceBatcher(rules, *common, keeps_state=self.sequences)
        if self.kind == "rate limiter":
            self.limiter.register({one: self._limit() for one in self.instances})
            return RateLimitedScheduler(queue, merge, *common, self.limiter)
        return BatchScheduler(queue, merge, *common)

    def _limit(self) -> InstanceLimit:
        return InstanceLimit({Resource("R", 0): 1})

    def _ensemble(self) -> EnsembleScheduler:
        """What is asked stands behind it, and another model behind that, twice."""
        own = signature("m", {"X": "FP32"}, {"Y": "FP32", "Z": "FP32"})
        inner = signature("inner", {"X": "FP32"}, {"X": "FP32"}, decoupled=self.streams)
        after = signature("after", {"X": "FP32"}, {"X": "FP32"})
        self.all_counters.append(Counters())
        queue, merge = BatchQueue(QueuePolicy(max_size=100)), MergeRules(max_rows=4)
        second = BatchScheduler(
            queue, merge, [Erratic({}, terms=self.terms)], self.all_counters[-1], CoreTokens(2)
        )
        self.behind.append(second)
        models = {"inner": (inner, self.inner), "after": (after, second)}
        caller = SchedulerCaller(models, self.grouped)
        graph = graph_of(
            own,
            ("inner", {"X": "X"}, {"X": "t"}),
            ("after", {"X": "t"}, {"X": "Y"}),
            ("after", {"X": "t"}, {"X": "Z"}),
            max_inflight=0 if self.grouped else self.dice.choice([0, 1, 3]),
        )
        compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
        assert isinstance(compiled, CompiledEnsemble), compiled
        served = ServedEnsemble(graph, own, compiled, caller.signatures)
        self.counters = Counters()
        self.all_counters.append(self.counters)
        return EnsembleScheduler(served, caller, self.counters, MOST_WAITING)

    # what happens

    def ask(self) -> None:
        made = self._request()
        if self.grouped:
            self.terms[made.id] = dict(made.parameters)
            made = replace(made, parameters={})
        try:
            reply = self.scheduler.submit(made)
        except (SchedulingError, BackendError):
            return
        self.ends[made.id] = 0
        self.asked.append((made, reply))
        reply.watch(lambda _: self._note_end(made.id))
        if self.streams:
            self.tasks.append(asyncio.create_task(self._read(made, reply)))

    def _request(self) -> InferRequest:
        dice, number, now_ns = self.dice, next(self.numbers), time.monotonic_ns()
        alone = self.sequences or self.iterative
        columns, rows = (
            2 if self.grouped else dice.randint(1, 2),
            1 if alone else dice.randint(1, 3),
        )
        member = Membership(dice.randint(1, 9), dice.random() < 0.4, dice.random() < 0.2)
        return InferRequest(
            "m",
            1,
            {"X": np.full((rows, columns), number, np.float32)},
            rows,
            None if self.grouped else columns,
            now_ns,
            f"r{number}",
            parameters={
                "how": dice.choices(["", "fails", "all fail", "dies"], [30, 2, 1, 1])[0],
                "runs": dice.randint(1, 4) if self.iterative else 1,
                "responses": dice.randint(0, 40) if self.streams else 1,
            },
            priority=dice.choice([0, 2]) if self.grouped else dice.randint(0, 3),
            timeout_us=dice.choice([0, 0, 0, 300]),
            deadline_ns=dice.choice([0, 0, 0, now_ns + dice.randint(1, 3_000_000)]),
            sequence=member if self.sequences else None,
        )

    def _note_end(self, id: str) -> None:
        self.ends[id] += 1

    async def _read(self, made: InferRequest, reply: Reply) -> None:
        count = 0
        try:
            async for response in reply:
                if not response.outputs:
                    continue
                count += 1
                for array in response.outputs.values():
                    np.testing.assert_array_equal(array, made.inputs["X"])
                if self.dice.random() < 0.2:
                    await asyncio.sleep(0)
        except (SchedulingError, BackendError):
            return
        if not reply.cancelled:
            assert count == made.parameters["responses"], "all responses, once each"

    def cancel(self) -> None:
        if self.asked:
            self.dice.choice(self.asked[-20:])[1].cancel()

    def revive(self) -> None:
        for one in self.everyone:
            if not one.ready and not one.closed:
                one.revive()

    def resize(self) -> None:
        kept = [one for one in self.instances if self.dice.random() < 0.6]
        while len(kept) < self.dice.randint(1, 3):
            kept.append(self._instance())
            self.everyone.append(kept[-1])
            if self.kind == "rate limiter":
                self.limiter.register({kept[-1]: self._limit()})
        self.instances = kept
        until_ns = time.monotonic_ns() + 5_000_000
        self.tasks.append(asyncio.create_task(self.inner.resize(kept, until_ns)))

    async def play(self) -> None:
        acts = [self.ask, self.cancel, self.revive, self.resize]
        for _ in range(STEPS):
            act = self.dice.choices(acts, [20, 3, 2, 1])[0]
            for _ in range(5 if self.grouped and act == self.ask else 1):
                act()
            if self.dice.random() < 0.5:
                await asyncio.sleep(self.dice.choice([0, 0, 0.0005]))
        await self._end()

    async def _end(self) -> None:
        """Every instance lives again: whatever waits is answered, and nothing is left."""
        while not all(self.ends.values()):
            self.revive()
            await asyncio.sleep(0.001)
        await asyncio.gather(*self.tasks)
        await self.scheduler.drain(time.monotonic_ns() + PATIENCE_S * 10**9)
        for one in self.behind:
            await one.drain(time.monotonic_ns() + PATIENCE_S * 10**9)
            assert one.inflight() == 0
        self._check()
        for one in (self.scheduler, *self.behind):
            await one.close()
        assert {one.closed for one in self.everyone} == {1}

    def _check(self) -> None:
        assert set(self.ends.values()) <= {1}, "every request ends exactly once"
        assert self.scheduler.inflight() == 0
        assert {one.pending for one in self.all_counters} == {0}
        failures = self.counters.failure
        assert self.counters.success + sum(failures.values()) >= len(self.asked)
        if self.streams:
            return
        for made, reply in self.asked:
            if reply.error is None:
                for array in reply.result().outputs.values():
                    np.testing.assert_array_equal(array, made.inputs["X"])
                if self.sequences:
                    self._check_sequence(made)

    def _check_sequence(self, made: InferRequest) -> None:
        """What had been executed of its sequence before: all of it that was answered, in order,
        from its start, and nothing of another."""
        asked = [
            (one, reply) for one, reply in self.asked if one.correlation_id == made.correlation_id
        ]
        number = {one.id: index for index, (one, _) in enumerate(asked)}
        before = [number[id] for id in self.before[made.id]]
        assert before == sorted(before)
        first = min(before, default=number[made.id])
        starts = [bool(one.sequence and one.sequence.start) for one, _ in asked]
        assert starts[first]
        answered = [
            index for index in range(first, number[made.id]) if asked[index][1].error is None
        ]
        assert set(answered) <= set(before)
        assert not any(starts[index] for index in before if index != first)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_request_ends_once_with_its_own_answer_and_nothing_is_left(
    kind: str, seed: int
) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await Play(kind, seed).play()

    asyncio.run(whole())
