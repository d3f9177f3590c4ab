"""What waits for a place: by priority, fair between principals, bounded. Pure policy.

Within a priority the principal that was served least goes first (a virtual token counter: a
principal that comes back is lifted to the least served of those present, so that having been away
earns nothing). Preempted sequences go before everything of their priority.
"""

import sys
from collections import deque
from collections.abc import Collection, Iterator

from schedulers.llm.policy.sequence import LLMSequence


class WaitingQueue:
    """Sequences in the order they will be admitted."""

    def __init__(self) -> None:
        self._preempted: list[LLMSequence] = []
        self._lines: dict[tuple[int, str], deque[LLMSequence]] = {}
        self._served: dict[str, float] = {}
        self._size = 0
        self.prompt_tokens = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[LLMSequence]:
        """Every waiting sequence, in no particular order."""
        yield from self._preempted
        for line in self._lines.values():
            yield from line

    def push(self, sequence: LLMSequence) -> None:
        """Take in a new sequence."""
        request = sequence.request
        self._lift(request.principal)
        self._lines.setdefault((request.priority, request.principal), deque()).append(sequence)
        self._count(sequence, 1)

    def push_preempted(self, sequence: LLMSequence) -> None:
        """Take back a sequence that lost its blocks."""
        self._preempted.append(sequence)
        self._preempted.sort(key=lambda one: one.rank)
        self._count(sequence, 1)

    def first(
        self, passed_over: Collection[LLMSequence] = (), most_tokens: int | None = None
    ) -> LLMSequence | None:
        """Who is to be admitted next, but for those held, those `passed_over`, and those that have
        more than `most_tokens`."""
        most = sys.maxsize if most_tokens is None else most_tokens
        lines = [self._preempted, *self._lines.values()]
        firsts = (
            next(
                (
                    one
                    for one in line
                    if not one.held and one not in passed_over and len(one.tokens) <= most
                ),
                None,
            )
            for line in lines
        )
        return min((one for one in firsts if one is not None), key=self._place, default=None)

    def remove(self, sequence: LLMSequence) -> None:
        """Take out a sequence that is waiting."""
        if sequence in self._preempted:
            self._preempted.remove(sequence)
        else:
            key = (sequence.request.priority, sequence.request.principal)
            self._lines[key].remove(sequence)
            if not self._lines[key]:
                del self._lines[key]
        self._count(sequence, -1)

    def charge(self, principal: str, cost: float) -> None:
        """Note what a principal was served."""
        self._served[principal] = self._served.get(principal, self._floor()) + cost

    def forget_absent(self, running: set[str]) -> None:
        """Drop the counters of principals with nothing here any more."""
        present = running | {principal for _, principal in self._lines}
        present |= {sequence.request.principal for sequence in self._preempted}
        self._served = {who: served for who, served in self._served.items() if who in present}

    def _place(self, sequence: LLMSequence) -> tuple[int, bool, float, int]:
        request = sequence.request
        fresh = sequence.preemptions == 0
        served = self._served.get(request.principal, 0.0) if fresh else 0.0
        return (request.priority, fresh, served, sequence.order)

    def _lift(self, principal: str) -> None:
        self._served.setdefault(principal, self._floor())

    def _floor(self) -> float:
        return min(self._served.values(), default=0.0)

    def _count(self, sequence: LLMSequence, sign: int) -> None:
        self._size += sign
        self.prompt_tokens += sign * len(sequence.tokens)
