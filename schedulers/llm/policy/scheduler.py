"""Who computes which tokens next: submit, schedule, commit. Pure policy; time is an argument.

There is no prefill and no decode phase: every step spends one budget of tokens, first on the next
token of every running sequence, then on prompts, in chunks (`shares`), smaller where steps
that decode would take too long (`prefill_budget`). A sequence is admitted when its whole prompt has
blocks. When blocks run out, the lowest-ranking sequence gives up all of its own and starts over
later, finding most of them in the prefix cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from schedulers.llm.errors import PromptTooLong, TooMuchWaiting
from schedulers.llm.generation import Finish, GenerateRequest
from schedulers.llm.policy.blocks import BlockPool, PoolUse
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.prefill_budget import PrefillBudget
from schedulers.llm.policy.sequence import LLMSequence
from schedulers.llm.policy.step import Chunk, EndedSequence, Step
from schedulers.llm.policy.step_builder import StepBuilder
from schedulers.llm.policy.waiting_queue import WaitingQueue

DECODE_COST = 2.0
"""What a decode row is charged, in prompt tokens; measured 1.6 on two CPU cores."""


@dataclass(frozen=True, slots=True)
class SchedulerCounts:
    """What happened since the start, and what is here now."""

    prompt_tokens: int
    generated_tokens: int
    prefix_hit_tokens: int
    preemptions: int
    running: int
    waiting: int
    waiting_tokens: int
    blocks: PoolUse


class SequenceScheduler:
    """Sequences from `submit` until their Finish; the one owner of `pool`."""

    def __init__(self, limits: EngineLimits, pool: BlockPool) -> None:
        self.limits = limits
        self._pool = pool
        self._room = min(limits.context, pool.count * pool.block_tokens)
        self._sequences: dict[str, LLMSequence] = {}
        self._held: set[str] = set()
        self._running: list[LLMSequence] = []
        self._waiting = WaitingQueue()
        self._budget = PrefillBudget(limits.step_tokens, limits.step_s)
        self._planned = (0, 0)
        self._arrivals = 0
        self._prompt_tokens = self._generated = self._hits = self._preemptions = 0
        self._last: tuple[float, int] | None = None
        self._tokens_per_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether anything runs, or waits and is not held."""
        return len(self._sequences) > len(self._held)

    def submit(
        self,
        request: GenerateRequest,
        now_s: float,
        *,
        held: bool = False,
        stop_ids: frozenset[int] | None = None,
    ) -> None:
        """Take a request in, or raise PromptTooLong, TooMuchWaiting or ValueError (its id is in
        use, its prompt is empty, or it asks for no token); then it is still the caller's.

        `held`: it waits like any other, but is passed over until `let_go`. `stop_ids`: the tokens
        that end it; None for the request's own."""
        self._refuse_impossible(request)
        self._refuse_overload(request)
        ends = frozenset(request.stop_ids) if stop_ids is None else stop_ids
        sequence = LLMSequence(request, self._arrivals, now_s, ends, held)
        self._arrivals += 1
        self._sequences[request.id] = sequence
        self._waiting.push(sequence)
        if held:
            self._held.add(request.id)

    def let_go(self, id: str) -> None:
        """A held sequence may be admitted from now on."""
        self._held.discard(id)
        if (sequence := self._sequences.get(id)) is not None:
            sequence.held = False

    def finish(self, id: str) -> bool:
        """End a sequence now, wherever it is, and free its blocks; False if it is not here."""
        sequence = self._sequences.pop(id, None)
        self._held.discard(id)
        if sequence is None:
            return False
        if sequence in self._running:
            self._running.remove(sequence)
            self._pool.release(sequence.blocks)
        else:
            self._waiting.remove(sequence)
        return True

    def discard(self, id: str) -> list[int]:
        """End a running sequence whose keys and values may be no numbers; its blocks that nobody
        else holds, which the caller is to zero before the next step."""
        sequence = self._sequences.pop(id)
        self._running.remove(sequence)
        return self._pool.discard(sequence.blocks)

    def schedule(self, now_s: float) -> Step:
        """What to compute next. Nothing of it counts before `commit`; a step that failed is simply
        not committed, and the same tokens are planned again.

        While anything is here that is not held, there is something to compute.
        """
        self._note_rate(now_s)
        ended = self._expire(now_s)
        most = self._budget.prompt_tokens
        plan = StepBuilder(self.limits, self._pool, self._running, self._waiting, most)
        chunks = plan.fill()
        self._planned = (plan.decode_rows, plan.prompt_tokens)
        self._hits += plan.hit_tokens
        self._preemptions += len(plan.preempted)
        self._last = (now_s, sum(len(chunk.tokens) for chunk in chunks))
        return Step(chunks, tuple(one.request.id for one in plan.preempted), ended)

    def commit(self, step: Step, sampled: Mapping[str, int]) -> dict[str, Finish | None]:
        """Count what a step computed and append what it sampled, by sequence id; for each sequence
        that has its token now, why it is over, or None.

        Sequences that ended or lost their blocks since the step was planned are passed over.
        """
        finishes: dict[str, Finish | None] = {}
        for chunk in step.chunks:
            sequence = self._sequences.get(chunk.id)
            if sequence is None or sequence.preemptions != chunk.preemption_epoch:
                continue
            self._count(sequence, chunk)
            if chunk.samples:
                finishes[chunk.id] = self._append(sequence, sampled[chunk.id])
        self._waiting.forget_absent({one.request.principal for one in self._running})
        return finishes

    def took(self, seconds: float) -> None:
        """The step that was planned last took so long."""
        self._budget.note(*self._planned, seconds)

    def forget_cached(self) -> int:
        """Drop the prefix cache; how many blocks that were."""
        return self._pool.forget_cached()

    def withdraw(self, count: int) -> list[int]:
        """At most `count` more blocks that are cached or empty go; all that are withdrawn now.

        Enough for one whole context stay."""
        use = self._pool.use()
        kept = -(-self._room // self._pool.block_tokens)
        self._pool.withdraw(min(count, self._pool.count - use.withdrawn - kept))
        return self._pool.withdrawn()

    def restore(self, count: int) -> list[int]:
        """At most `count` withdrawn blocks come back; all that are withdrawn still."""
        self._pool.restore(count)
        return self._pool.withdrawn()

    def counts(self) -> SchedulerCounts:
        return SchedulerCounts(
            self._prompt_tokens,
            self._generated,
            self._hits,
            self._preemptions,
            len(self._running),
            len(self._waiting),
            self._waiting.prompt_tokens,
            self._pool.use(),
        )

    def check(self) -> None:
        """Raise AssertionError unless blocks, lists and counts agree. For tests: it is slow."""
        self._pool.check([one.blocks for one in self._running])
        assert {*self._running, *self._waiting} == set(self._sequences.values())
        assert len(self._running) + len(self._waiting) == len(self._sequences)
        for one in self._running:
            assert one.computed < len(one.tokens) <= self.limits.context
            assert one.computed <= len(one.blocks) * self._pool.block_tokens
        for one in self._waiting:
            assert not one.blocks
            assert one.computed == 0
        assert {one.request.id for one in self._waiting if one.held} == self._held
        assert self._waiting.prompt_tokens == sum(len(one.tokens) for one in self._waiting)

    def _refuse_impossible(self, request: GenerateRequest) -> None:
        if request.id in self._sequences:
            raise ValueError(f"request id '{request.id}' is in use; choose another")
        if not request.prompt:
            raise ValueError("the prompt is empty; it needs at least one token")
        if request.max_tokens < 1:
            raise ValueError(f"max_tokens is {request.max_tokens}; it must be at least 1")
        if len(request.prompt) >= self._room:
            raise PromptTooLong(
                f"the prompt has {len(request.prompt)} tokens; at most {self._room - 1} leave "
                f"room for an answer (context {self.limits.context}, cache "
                f"{self._pool.count * self._pool.block_tokens})"
            )

    def _refuse_overload(self, request: GenerateRequest) -> None:
        waiting, tokens = len(self._waiting), self._waiting.prompt_tokens
        if waiting >= self.limits.waiting:
            raise TooMuchWaiting(f"{waiting} requests wait already", self._retry_after_s())
        if waiting and tokens + len(request.prompt) > self.limits.waiting_tokens:
            raise TooMuchWaiting(
                f"{tokens} prompt tokens wait already, and {len(request.prompt)} more would pass "
                f"the limit of {self.limits.waiting_tokens}",
                self._retry_after_s(),
            )

    def _retry_after_s(self) -> float:
        rate = self._tokens_per_s or self.limits.step_tokens
        return min(max(self._waiting.prompt_tokens / 2 / rate, 1.0), 60.0)

    def _note_rate(self, now_s: float) -> None:
        if self._last is not None and self._last[1] and now_s > self._last[0]:
            rate = self._last[1] / (now_s - self._last[0])
            self._tokens_per_s += 0.2 * (rate - self._tokens_per_s)

    def _expire(self, now_s: float) -> tuple[EndedSequence, ...]:
        late = [one for one in self._sequences.values() if one.request.deadline_s <= now_s]
        return tuple(
            self._end(one, Finish.DEADLINE, f"the deadline passed after {one.generated} tokens")
            for one in late
        )

    def _end(self, sequence: LLMSequence, reason: Finish, message: str) -> EndedSequence:
        self.finish(sequence.request.id)
        return EndedSequence(sequence.request.id, reason, message)

    def _count(self, sequence: LLMSequence, chunk: Chunk) -> None:
        count = len(chunk.tokens)
        sequence.computed += count
        decoding = chunk.start >= len(sequence.request.prompt)
        self._prompt_tokens += 0 if decoding else count
        self._waiting.charge(sequence.request.principal, DECODE_COST if decoding else count)
        digests = sequence.digests(self._pool.block_tokens, sequence.computed)
        for index in range(sequence.registered, len(digests)):
            self._pool.register_hash(sequence.blocks[index], digests[index])
        sequence.registered = len(digests)

    def _append(self, sequence: LLMSequence, token: int) -> Finish | None:
        finish = sequence.append(token)
        if finish is None and len(sequence.tokens) >= self._room:
            finish = Finish.LENGTH
        self._generated += 1
        if finish is not None:
            self.finish(sequence.request.id)
        return finish
