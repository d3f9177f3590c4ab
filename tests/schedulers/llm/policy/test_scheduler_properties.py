"""Random workloads: the books balance after every step, and every sequence gets its answer."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from schedulers.llm.errors import PromptTooLong, TooMuchWaiting
from schedulers.llm.generation import NEVER, Finish, GenerateRequest
from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.scheduler import SequenceScheduler
from schedulers.llm.policy.step import Step

LIMITS = EngineLimits(
    step_tokens=12, running=4, waiting=6, waiting_tokens=80, context=40, watermark_blocks=1
)
BLOCKS, BLOCK_TOKENS = 9, 4


class Workload(RuleBasedStateMachine):
    """A model of the house: who should be here, with which tokens and which cache contents."""

    def __init__(self) -> None:
        super().__init__()
        self.subject = SequenceScheduler(LIMITS, BlockPool(BLOCKS, BLOCK_TOKENS))
        self.now_s = 0.0
        self.here: dict[str, list[int]] = {}
        self.requests: dict[str, GenerateRequest] = {}
        self.cache: dict[int, tuple[int, ...]] = {}
        self.ids = 0

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=45),
        answer=st.integers(1, 12),
        principal=st.sampled_from("abc"),
        priority=st.integers(0, 2),
        patience=st.sampled_from([1.0, NEVER, NEVER, NEVER]),
    )
    def submit(
        self, prompt: list[int], answer: int, principal: str, priority: int, patience: float
    ) -> None:
        self.ids += 1
        request = GenerateRequest(
            str(self.ids),
            tuple(prompt),
            answer,
            stop_ids=(3,),
            principal=principal,
            priority=priority,
            deadline_s=self.now_s + patience,
            salt=principal.encode(),
        )
        try:
            self.subject.submit(request, self.now_s)
        except PromptTooLong:
            assert len(prompt) >= min(LIMITS.context, BLOCKS * BLOCK_TOKENS)
        except TooMuchWaiting:
            assert self.subject.counts().waiting
        else:
            self.here[request.id] = list(prompt)
            self.requests[request.id] = request

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.here)))
        assert self.subject.finish(gone)
        del self.here[gone]

    @rule(seconds=st.floats(0.1, 1.5), failing=st.booleans(), draw=st.integers(0, 3))
    def step(self, seconds: float, failing: bool, draw: int) -> None:
        self.now_s += seconds
        step = self.subject.schedule(self.now_s)
        self._check(step)
        for ended in step.ended:
            assert ended.reason is Finish.DEADLINE
            del self.here[ended.id]
        if failing:
            return
        self._write(step)
        sampled = {chunk.id: (draw + len(chunk.id)) % 4 for chunk in step.chunks if chunk.samples}
        for id, finish in self.subject.commit(step, sampled).items():
            self.here[id].append(sampled[id])
            if finish is not None:
                del self.here[id]

    def _check(self, step: Step) -> None:
        ended = {one.id for one in step.ended}
        assert sum(len(chunk.tokens) for chunk in step.chunks) <= LIMITS.step_tokens
        assert len({chunk.id for chunk in step.chunks}) == len(step.chunks) <= LIMITS.running
        assert step.chunks or not set(self.here) - ended, "work waits and nothing is planned"
        for chunk in step.chunks:
            end = chunk.start + len(chunk.tokens)
            assert list(chunk.tokens) == self.here[chunk.id][chunk.start : end]
            assert len(chunk.blocks) * BLOCK_TOKENS >= end
            assert chunk.samples == (end == len(self.here[chunk.id]))
            self._check_cache(chunk.id, chunk.start, chunk.blocks)

    def _check_cache(self, id: str, start: int, blocks: tuple[int, ...]) -> None:
        """What the chunk builds on is in its blocks, written by it or by an equal beginning."""
        salt = self.requests[id].salt
        for position in range(start):
            slot = blocks[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS
            assert self.cache[slot] == (*salt, *self.here[id][: position + 1])

    def _write(self, step: Step) -> None:
        for chunk in step.chunks:
            salt = self.requests[chunk.id].salt
            for position in range(chunk.start, chunk.start + len(chunk.tokens)):
                block = chunk.blocks[position // BLOCK_TOKENS]
                slot = block * BLOCK_TOKENS + position % BLOCK_TOKENS
                self.cache[slot] = (*salt, *self.here[chunk.id][: position + 1])

    @invariant()
    def books_balance(self) -> None:
        self.subject.check()
        assert self.subject.busy == bool(self.here)

    def teardown(self) -> None:
        for _ in range(2000):
            if not self.here:
                return
            self.step(0.1, False, 0)
        raise AssertionError(f"never answered: {sorted(self.here)}")


Workload.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_random_workloads_are_answered_and_the_books_balance = Workload.TestCase
