"""How a step's prompt tokens are dealt out among the prompts that want some. Pure policy.

The more urgent priority comes first. Within one, what is nearly done goes first, up to half: a chat
of 30 tokens is answered beside eight prompts of 4,000. A quarter is spread over all, so that every
prompt gets into the step; and the rest is the oldest one's, so that long prompts end one after the
other, and none starves. Among the short ones each principal's shortest comes before anybody's
second.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

SHORT_TOKENS = 64
"""A prompt with no more to compute than this is nearly done."""
SHORT_LEAST = 32
"""So many tokens a step are there for these even where answers leave less to prompts: a beginning
is cheap, having little before it to attend to, while the pace was learned from long prompts."""


@dataclass(frozen=True, slots=True)
class PrefillDemand:
    """A prompt of which `remaining` tokens are still to be computed; a smaller `priority` is more
    urgent."""

    remaining: int
    priority: int = 0
    principal: str = ""


def share_out(wants: Sequence[PrefillDemand], budget: int, most: int) -> list[int]:
    """Tokens of each, in order; `wants` stand in the order of rank (priority, then arrival).

    `budget`: tokens of all together, which only those nearly done may exceed, up to `most`.
    """
    shares = [0] * len(wants)
    order = range(len(wants))
    for _, group in groupby(order, key=lambda index: wants[index].priority):
        dealt = sum(shares)
        deal = _PriorityShares(wants, shares, most - dealt)
        deal.among(list(group), max(min(budget, most) - dealt, 0))
    return shares


class _PriorityShares:
    """Dealing to one priority; `left`: of the step."""

    def __init__(self, wants: Sequence[PrefillDemand], shares: list[int], left: int) -> None:
        self._wants = wants
        self._shares = shares
        self._left = left

    def among(self, group: Sequence[int], budget: int) -> None:
        """To these, who stand in the order of arrival."""
        if len(group) == 1 and self._wants[group[0]].remaining > SHORT_TOKENS:
            self._give(group, budget)
            return
        shortest = _by_length(self._wants, group)
        nearly = [one for one in shortest if self._wants[one].remaining <= SHORT_TOKENS]
        used = self._give(nearly, max(budget // 2, SHORT_LEAST))
        rest = max(budget - used, budget // 2)
        rest -= self._give(shortest, rest // 2, each=max(rest // 2 // len(group), 1))
        self._give(group, rest)

    def _give(self, to: Iterable[int], most: int, each: int | None = None) -> int:
        """One after the other as much as it wants, or at most `each`; how much it was in all."""
        given = 0
        for one in to:
            wanted = self._wants[one].remaining - self._shares[one]
            count = min(wanted, most - given, self._left, wanted if each is None else each)
            self._shares[one] += count
            self._left -= count
            given += count
        return given


def _by_length(wants: Sequence[PrefillDemand], group: Sequence[int]) -> list[int]:
    """The shortest first, but each principal's first before anybody's second."""
    turns: dict[str, int] = {}
    places = []
    for one in sorted(group, key=lambda index: wants[index].remaining):
        turn = turns[wants[one].principal] = turns.get(wants[one].principal, -1) + 1
        places.append((turn, one))
    return [one for _, one in sorted(places, key=lambda place: place[0])]
