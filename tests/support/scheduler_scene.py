"""A scheduler of any kind over one instance whose gate the test opens: `Scene("batching")`."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from backends.llm.settings import ServeSettings
from backends.seam import Batch, BatchResult, ResponsePart, ResponseSender
from schedulers.batching import BatchScheduler
from schedulers.cache import ResponseCache
from schedulers.cached_scheduler import CachedScheduler
from schedulers.counters import Counters
from schedulers.ensembles.policy.compile import CompiledEnsemble, compile_ensemble
from schedulers.ensembles.scheduler import EnsembleScheduler
from schedulers.ensembles.served_ensemble import ServedEnsemble, find_all
from schedulers.llm.engine_messages import (
    EngineOpened,
    Message,
    StepReport,
    Submit,
)
from schedulers.llm.gateway.engine_tokeniser import EngineTokeniser
from schedulers.llm.gateway.language import Language
from schedulers.llm.gateway.language_scheduler import LanguageScheduler
from schedulers.llm.generation import GENERATE, Finish, GenerateRequest, GenerationOutput
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from schedulers.policy.resource_limits import InstanceLimit, Resource, ResourceLimiter
from schedulers.policy.slots import SequenceRules
from schedulers.rate_limited import RateLimitedScheduler, RateLimitedSequenceBatcher
from schedulers.reply import Reply
from schedulers.request import InferRequest
from schedulers.request import Sequence as Membership
from schedulers.seam import Scheduler
from schedulers.sequences.batcher import SequenceBatcher
from support.ensembles import SchedulerCaller, graph_of, signature
from support.schedulers import EngineWithoutProcess, GatedEcho, request

PATIENCE_S = 60
WAITING = 2
"""Requests that may wait beside the one that runs."""

KINDS = (
    "batching",
    "rate limiter",
    "response cache",
    "decoupled model",
    "sequences",
    "sequences under the rate limiter",
    "language model",
    "ensemble",
)


class Gated(Protocol):
    """An instance that answers nothing until its gate is opened."""

    started: threading.Semaphore
    closed: bool

    def open(self) -> None: ...


class Echo(GatedEcho):
    def open(self) -> None:
        self.gate.set()


class StreamedEcho(Echo):
    """The same of a decoupled model, which answers each request once."""

    streams = True

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        outcome = self.execute(batch)
        for result, outlet in zip(outcome.results, outlets, strict=True):
            outlet.send(ResponsePart(result, last=True))
        return outcome._replace(results=())


class GatedEngine(EngineWithoutProcess):
    """Answers every prompt with one token."""

    opened = EngineOpened("", 64, 1, 16, 0, 0, 0, 0, b"", b"")

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Semaphore(0)
        self._is_open = False

    def post(self, message: Message) -> bool:
        super().post(message)
        if isinstance(message, Submit):
            self.started.release()
            if self._is_open:
                self._answer(message)
        return True

    def open(self) -> None:
        self._is_open = True
        for message in self.told:
            if isinstance(message, Submit):
                self._answer(message)

    def _answer(self, message: Submit) -> None:
        ids = tuple(request.id for request in message.requests)
        outputs = [GenerationOutput(id, 7, "a", finish=Finish.LENGTH) for id in ids]
        self.on_message(StepReport(time.monotonic_ns(), ids, outputs, None))


def batching(instance: Echo) -> BatchScheduler:
    return BatchScheduler(
        BatchQueue(QueuePolicy(max_size=WAITING)),
        MergeRules(max_rows=8),
        [instance],
        Counters(),
        CoreTokens(2),
    )


def limited(instance: Echo) -> RateLimitedScheduler:
    limiter = ResourceLimiter()
    limiter.register({instance: InstanceLimit({Resource("R", 0): 1})})
    return RateLimitedScheduler(
        BatchQueue(QueuePolicy(max_size=WAITING)),
        MergeRules(max_rows=8),
        [instance],
        Counters(),
        CoreTokens(2),
        limiter,
    )


def ensemble_over(behind: Scheduler, echo: Echo) -> EnsembleScheduler:
    """An ensemble of one step; what it closes is noted on the step's instance."""

    class Noting(ServedEnsemble):
        def close(self) -> None:
            echo.closed = True

    own = signature("m", {"X": "FP32"}, {"Y": "FP32"})
    caller = SchedulerCaller({"inner": (signature("inner", {"X": "FP32"}, {"X": "FP32"}), behind)})
    graph = graph_of(own, ("inner", {"X": "X"}, {"X": "Y"}))
    compiled = compile_ensemble(graph, own, find_all(graph, caller.signatures))
    assert isinstance(compiled, CompiledEnsemble)
    ensemble = Noting(graph, own, compiled, caller.signatures)
    return EnsembleScheduler(ensemble, caller, Counters(), 1 + WAITING)


def sequencing(instance: Echo, limiter: ResourceLimiter | None = None) -> SequenceBatcher:
    """Every request of the scene is a sequence of its own; two slots, so that one waits in each
    place."""
    merge = MergeRules(max_rows=1)
    rules = SequenceRules(False, 2, 60 * 10**9, WAITING, merge)
    shared = rules, [instance], Counters(), CoreTokens(2)
    if limiter is None:
        return SequenceBatcher(*shared, keeps_state=True)
    limiter.register({instance: InstanceLimit({Resource("R", 0): 1})})
    return RateLimitedSequenceBatcher(*shared, limiter, keeps_state=True)


class Scene:
    """A scheduler over one instance, whose gate the test opens."""

    def __init__(self, kind: str) -> None:
        self.is_language = kind == "language model"
        self.has_sequences = False
        self.asked = 0
        self.behind: Scheduler | None = None
        self.instance: Gated
        self.scheduler: Scheduler
        if self.is_language:
            self.instance = engine = GatedEngine()
            settings = ServeSettings(max_running=1, max_waiting=WAITING)
            language = Language(EngineTokeniser(), None, 64, 160, (2,))
            self.scheduler = LanguageScheduler(settings, language, [engine], Counters())
            return
        self.instance = echo = StreamedEcho() if kind == "decoupled model" else Echo()
        self.scheduler = batching(echo)
        if kind == "rate limiter":
            self.scheduler = limited(echo)
        self.has_sequences = kind.startswith("sequences")
        if self.has_sequences:
            self.scheduler = sequencing(echo, None if kind == "sequences" else ResourceLimiter())
        if kind == "ensemble":
            self.behind, self.scheduler = self.scheduler, ensemble_over(self.scheduler, echo)
        if kind == "response cache":
            self.scheduler = CachedScheduler(self.scheduler, ResponseCache(1 << 20), Counters())

    def request(self) -> InferRequest:
        """Unlike every other, so that no cache knows its answer."""
        self.asked += 1
        facts: dict[str, Any] = {"id": f"r{self.asked}", "arrived_ns": time.monotonic_ns()}
        if self.is_language:
            asked = GenerateRequest("answer", (1, 2), 1)
            return InferRequest("m", 1, {}, 1, None, parameters={GENERATE: (asked,)}, **facts)
        if self.has_sequences:
            facts["sequence"] = Membership(self.asked, True, True)
        return request(value=self.asked, **facts)

    def submit(self) -> Reply:
        return self.scheduler.submit(self.request())

    async def fill(self) -> list[Reply]:
        """One request that runs, and as many waiting as may."""
        running = self.submit()
        assert await asyncio.to_thread(self.instance.started.acquire, timeout=PATIENCE_S)
        return [running, *(self.submit() for _ in range(WAITING))]
