"""One step, planned: who decodes, whose prompt advances, who is admitted, who loses its blocks.

Comes from `Scheduler.schedule`; changes block tables and who runs, never what was computed. Pure.
"""

from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.sequence import LLMSequence
from schedulers.llm.policy.shares import PrefillDemand, share_out
from schedulers.llm.policy.step import Chunk
from schedulers.llm.policy.waiting_queue import WaitingQueue


class StepBuilder:
    """The making of one Step; used once."""

    def __init__(
        self,
        limits: EngineLimits,
        pool: BlockPool,
        running: list[LLMSequence],
        waiting: WaitingQueue,
        prompt_tokens: int,
    ) -> None:
        """`prompt_tokens`: of prompts, where anything decodes."""
        self._limits = limits
        self._prompt_tokens = prompt_tokens
        self._pool = pool
        self._running = running
        self._waiting = waiting
        self._left = limits.step_tokens
        self._decodes: dict[LLMSequence, int] = {}
        self._prompts: dict[LLMSequence, int] = {}
        self.preempted: list[LLMSequence] = []
        self.hit_tokens = self.decode_rows = self.prompt_tokens = 0

    def fill(self) -> tuple[Chunk, ...]:
        """Spend the step's token budget; the chunks, decode rows first."""
        self._decode()
        budget = min(self._left, self._prompt_tokens) if self._decodes else self._left
        if not self.preempted:
            self._admit()
        self._advance_prompts(budget)
        self.decode_rows, self.prompt_tokens = len(self._decodes), sum(self._prompts.values())
        planned = {**self._decodes, **self._prompts}
        return tuple(_chunk(sequence, count) for sequence, count in planned.items())

    def _decode(self) -> None:
        for sequence in sorted(self._running, key=lambda one: one.rank):
            if sequence in self._running and sequence.remaining == 1 and self._make_room(sequence):
                self._decodes[sequence] = 1
                self._left -= 1

    def _make_room(self, sequence: LLMSequence) -> bool:
        """A block for the next token, taken from the lowest-ranking sequence if there is none."""
        while len(sequence.blocks) * self._pool.block_tokens < len(sequence.tokens):
            block = self._pool.allocate(1)
            if block is not None:
                sequence.blocks += block
                continue
            victim = max(self._running, key=lambda one: one.rank)
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: LLMSequence) -> None:
        self._left += self._decodes.pop(victim, 0)
        self._running.remove(victim)
        self._pool.release(victim.blocks)
        victim.blocks, victim.computed, victim.registered = [], 0, 0
        victim.preemptions += 1
        self._waiting.push_preempted(victim)
        self.preempted.append(victim)

    def _advance_prompts(self, budget: int) -> None:
        """Deal out what is left of the step, at most `budget` of it but for what is nearly done."""
        running = (one for one in self._running if one not in self._decodes)
        prompts = sorted(running, key=lambda one: one.rank)
        wants = [
            PrefillDemand(one.remaining, one.request.priority, one.request.principal)
            for one in prompts
        ]
        for sequence, count in zip(prompts, share_out(wants, budget, self._left), strict=True):
            if count:
                self._prompts[sequence] = count
                self._left -= count

    def _admit(self) -> None:
        """Let in whom there is memory for. One who finds no blocks may be passed by others of its
        priority who need fewer, until these had as many tokens as it has itself."""
        passed: set[LLMSequence] = set()
        blocked: LLMSequence | None = None
        while (head := self._waiting.first(passed, self._fitting(blocked))) is not None:
            if blocked is not None and head.request.priority > blocked.request.priority:
                return
            if self._shares_with_running(head):
                passed.add(head)
            elif self._take(head) or self._take_by_priority(head):
                if blocked is not None:
                    blocked.passed_by += len(head.tokens)
            elif blocked is None and len(self._running) < self._limits.running:
                blocked = head
                passed.add(head)
            else:
                return

    def _fitting(self, blocked: LLMSequence | None) -> int | None:
        """Most tokens of who may pass `blocked`: what the free blocks hold; None for any."""
        if blocked is None:
            return None
        if blocked.passed_by >= len(blocked.tokens):
            return 0
        spare = self._limits.watermark_blocks if self._running else 0
        return max(self._pool.free - spare, 0) * self._pool.block_tokens

    def _take(self, sequence: LLMSequence) -> bool:
        """Admit a sequence if all its blocks fit."""
        if len(self._running) >= self._limits.running:
            return False
        hits = self._hits(sequence)
        needed = -(-len(sequence.tokens) // self._pool.block_tokens) - len(hits)
        spare = self._limits.watermark_blocks if self._running else 0
        blocks = self._pool.allocate(needed, hits, spare)
        if blocks is None:
            return False
        self._waiting.remove(sequence)
        self._running.append(sequence)
        sequence.blocks, sequence.registered = blocks, len(hits)
        sequence.computed = len(hits) * self._pool.block_tokens
        self.hit_tokens += sequence.computed
        return True

    def _take_by_priority(self, sequence: LLMSequence) -> bool:
        """Let those of a lower priority go until the sequence fits; False if that cannot help."""
        lower = [one for one in self._running if one.request.priority > sequence.request.priority]
        freed = sum(len(one.blocks) for one in lower) + self._pool.free
        wanted = -(-len(sequence.tokens) // self._pool.block_tokens) + self._limits.watermark_blocks
        if freed < wanted:
            return False
        for victim in sorted(lower, key=lambda one: one.rank, reverse=True):
            self._preempt(victim)
            if self._take(sequence):
                return True
        return False

    def _hits(self, sequence: LLMSequence) -> list[int]:
        """Cached blocks to start from; the last token is always computed, for its logits."""
        if not sequence.request.reads_cache:
            return []
        size = self._pool.block_tokens
        return self._pool.match(sequence.digests(size, len(sequence.tokens) - 1))

    def _shares_with_running(self, sequence: LLMSequence) -> bool:
        """Whether a running sequence is computing the block this one would start with; it waits
        for that instead of computing the same again."""
        if not sequence.request.reads_cache:
            return False
        size = self._pool.block_tokens
        wanted = sequence.digests(size, len(sequence.tokens) - 1)
        found = len(self._pool.match(wanted))
        if found == len(wanted):
            return False
        return any(
            wanted[found] in one.digests(size, len(one.request.prompt))[one.registered :]
            for one in self._running
            if one.remaining > 1
        )


def _chunk(sequence: LLMSequence, count: int) -> Chunk:
    request, prompt = sequence.request, sequence.request.prompt
    start, end = sequence.computed, sequence.computed + count
    samples = end == len(sequence.tokens)
    scores = request.prompt_logprobs if start < len(prompt) else None
    return Chunk(
        tuple(sequence.tokens[start:end]),
        start,
        tuple(sequence.blocks),
        int(samples) if scores is None else count,
        scores,
        prompt[end] if scores is not None and end < len(prompt) else None,
        id=request.id,
        samples=samples,
        preemption_epoch=sequence.preemptions,
    )
