"""How many of the waiting requests leave together, and when. Pure policy.

`schedulers.batching` asks when an instance is free; the answer counts tickets from the front of
`schedulers.policy.queue`. Source of the semantics: Triton's dynamic batcher. Because the question
is only asked for a free instance, a batch that could not start yet has kept growing meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from schedulers.policy.queue import NEVER, Ticket


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What a model's config says of merging.

    `max_rows` a batch may have (0: every request runs alone); `preferred` sizes in rows; how long
    the oldest request may wait for company; whether answers keep the order of the requests;
    whether dimension 0 is a batch at all; `hold_until` this many requests have been queued once
    before the first batch runs (TRITONSERVER_DELAY_SCHEDULER, a test hook of Triton's).
    """

    max_rows: int
    preferred: frozenset[int] = frozenset()
    delay_ns: int = 0
    preserve_order: bool = False
    batched: bool = True
    hold_until: int = 0


class MergeDecision(NamedTuple):
    """Take `take` tickets now; or, when 0, ask again at `again_ns`."""

    take: int
    again_ns: int


def cut(waiting: Iterable[Ticket], rules: MergeRules, now_ns: int) -> MergeDecision:
    """Decide about a non-empty queue, given in serving order.

    Takes the largest preferred size reachable. Where there is none, a batch that has reached the
    largest preferred size, or would exceed it with the next request, or cannot grow, leaves at
    once; another one waits for company as long as the delay says. No batch of several requests
    exceeds the largest preferred size.
    """
    if not rules.max_rows:
        return MergeDecision(1, NEVER)
    reach = _reach(waiting, rules)
    if not rules.delay_ns:
        return MergeDecision(reach.preferred or reach.tickets, NEVER)
    company_ends_ns = reach.oldest_ns + rules.delay_ns
    if now_ns >= company_ends_ns:
        return MergeDecision(reach.tickets, NEVER)  # no instance was free: it has grown meanwhile
    if reach.preferred:
        return MergeDecision(reach.preferred, NEVER)
    if reach.full:
        return MergeDecision(reach.tickets, NEVER)
    return MergeDecision(0, company_ends_ns)


class _Reach(NamedTuple):
    """How far one batch can reach from the front: tickets, when the oldest of them arrived,
    whether it cannot or must not grow any more, and the tickets that make the largest preferred
    size on the way (0 if none)."""

    tickets: int
    oldest_ns: int
    full: bool
    preferred: int


def _reach(waiting: Iterable[Ticket], rules: MergeRules) -> _Reach:
    tickets = rows = preferred = 0
    oldest_ns = NEVER
    most, preferences = rules.max_rows, rules.preferred
    if preferences:
        most = max(preferences)
    key: object = None
    for ticket in waiting:
        request = ticket.request
        if tickets == 0:
            key = request.shape_key
        elif rows + request.rows > most or request.shape_key != key:
            return _Reach(tickets, oldest_ns, True, preferred)
        tickets += 1
        rows += request.rows
        if request.arrived_ns < oldest_ns:
            oldest_ns = request.arrived_ns
        if preferences and rows in preferences:
            preferred = tickets
        if rows >= most:
            return _Reach(tickets, oldest_ns, True, preferred)
    return _Reach(tickets, oldest_ns, False, preferred)
