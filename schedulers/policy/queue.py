"""What waits for an instance: bounded, by priority, with timeouts. Pure policy.

Tickets come from `schedulers.batching.submit`; `schedulers.policy.merge` decides how many leave
together. Source of the semantics: Triton's `ModelQueuePolicy` and `PriorityQueue`.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from schedulers.errors import QueueFull
from schedulers.reply import Reply
from schedulers.request import InferRequest

NEVER = 1 << 63


class Ticket(Reply):
    """An accepted request and the reply it will get.

    `expires_ns`: when the queue's policy stops waiting for it; NEVER for no limit.
    `instance`: the number of the instance that executes it. `count`: requests that it stands for,
    more than one only of `schedulers.request_groups`.
    """

    __slots__ = ("expires_ns", "instance", "request")

    count = 1

    def __init__(self, request: InferRequest) -> None:
        super().__init__()
        self.request = request
        self.expires_ns = NEVER
        self.instance = 0

    def drop_cancelled(self) -> int:
        """Stand no longer for those for which nobody waits, of several; how many there were."""
        return 0


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """One priority level's rules. `max_size` requests may wait; a timeout of 0 is none.

    `delay`: a request whose timeout expires is served last instead of being refused.
    `allow_override`: the client's own timeout counts where it is shorter.
    """

    max_size: int
    timeout_ns: int = 0
    delay: bool = False
    allow_override: bool = True


class _Level:
    __slots__ = ("delayed", "fresh", "number", "policy")

    def __init__(self, number: int, policy: QueuePolicy) -> None:
        self.number = number
        self.policy = policy
        self.fresh: deque[Ticket] = deque()
        self.delayed: deque[Ticket] = deque()

    def waiting(self) -> int:
        return len(self.fresh) + len(self.delayed)


_MOST_EMPTY = 16
"""Levels that are kept although nothing waits in them: the next request need not make them."""


class BatchQueue:
    """Priority levels 1 (first) to n, each a queue and a second queue of delayed requests.

    A level takes memory only while something waits in it, however many a config allows.
    """

    def __init__(
        self,
        default: QueuePolicy,
        levels: Mapping[int, QueuePolicy] = MappingProxyType({}),
        count: int = 1,
        default_level: int = 1,
    ) -> None:
        """`count` levels; those not in `levels` follow `default`; priority 0 or beyond `count`
        means `default_level`."""
        self._count = count
        self._policy = default
        self._policies = levels
        self._default = _Level(default_level, levels.get(default_level, default))
        self._levels = [self._default]
        self._by_number = {default_level: self._default}
        self._size = 0
        self._more = 0
        """At least as many as groups have requests besides their first."""
        self.next_expiry_ns = NEVER

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Ticket]:
        """Every ticket, in the order they will be served."""
        if len(self._levels) == 1 and not self._default.delayed:
            return iter(self._default.fresh)
        return chain.from_iterable(chain(level.fresh, level.delayed) for level in self._levels)

    def push(self, ticket: Ticket, now_ns: int) -> None:
        """Take a ticket in, or raise QueueFull."""
        level = self._level_of(ticket.request.priority)
        policy, count = level.policy, ticket.count
        if self._size + self._more + count > policy.max_size and self._room(level) < count:
            raise QueueFull("Exceeds maximum queue size")
        expires_ns = _expiry(policy, ticket.request, now_ns)
        if expires_ns != NEVER:
            ticket.expires_ns = expires_ns
            self.next_expiry_ns = min(self.next_expiry_ns, expires_ns)
        level.fresh.append(ticket)
        self._size += 1
        self._more += count - 1

    def room(self, priority: int) -> int:
        """How many more requests of this priority may wait."""
        return max(0, self._room(self._level_of(priority)))

    def _room(self, level: _Level) -> int:
        if not self._more:
            return level.policy.max_size - level.waiting()
        self._more = sum(ticket.count for ticket in self) - self._size
        waiting = sum(ticket.count for ticket in chain(level.fresh, level.delayed))
        return level.policy.max_size - waiting

    def expire(self, now_ns: int) -> list[Ticket]:
        """Remove and return the tickets whose time is over; delay those that may wait on."""
        if now_ns < self.next_expiry_ns:
            return []
        refused: list[Ticket] = []
        for level in self._levels:
            refused += _expire_level(level, now_ns)
        self._size -= len(refused)
        self.next_expiry_ns = min((ticket.expires_ns for ticket in self), default=NEVER)
        return refused

    def take(self, count: int) -> list[Ticket]:
        """Remove and return the first `count` tickets in serving order."""
        fresh = self._default.fresh
        if len(fresh) == self._size == count:  # nearly always: no levels, and all of them leave
            self._size = 0
            taken = list(fresh)
            fresh.clear()
            return taken
        taken = []
        for level in self._levels:
            for waiting in (level.fresh, level.delayed):
                while waiting and len(taken) < count:
                    taken.append(waiting.popleft())
        self._size -= len(taken)
        return taken

    def forget_cancelled(self) -> int:
        """Remove every cancelled request; how many there were."""
        forgotten = 0
        for ticket in self:
            forgotten += ticket.count if ticket.cancelled else ticket.drop_cancelled()
        for level in self._levels:
            level.fresh = deque(ticket for ticket in level.fresh if not ticket.cancelled)
            level.delayed = deque(ticket for ticket in level.delayed if not ticket.cancelled)
        self._size = sum(level.waiting() for level in self._levels)
        return forgotten

    def drop_cancelled(self) -> int:
        """Drop the cancelled tickets at the front, so that the first one waits for an answer."""
        fresh = self._default.fresh
        if len(fresh) == self._size and fresh and not fresh[0].cancelled:
            return 0
        dropped = 0
        for level in self._levels:
            for waiting in (level.fresh, level.delayed):
                while waiting and waiting[0].cancelled:
                    dropped += waiting.popleft().count
                    self._size -= 1
        return dropped

    def _level_of(self, priority: int) -> _Level:
        if not 0 < priority <= self._count:
            return self._default
        return self._by_number.get(priority) or self._opened(priority)

    def _opened(self, number: int) -> _Level:
        """A level that nothing has waited in of late, in its place among the others."""
        if len(self._levels) > _MOST_EMPTY:
            self._levels = [one for one in self._levels if one is self._default or one.waiting()]
            self._by_number = {one.number: one for one in self._levels}
        level = _Level(number, self._policies.get(number, self._policy))
        insort(self._levels, level, key=lambda one: one.number)
        self._by_number[number] = level
        return level


def _expiry(policy: QueuePolicy, request: InferRequest, now_ns: int) -> int:
    timeout_ns = policy.timeout_ns
    if policy.allow_override and request.timeout_us:
        own_ns = request.timeout_us * 1000
        timeout_ns = min(timeout_ns, own_ns) if timeout_ns else own_ns
    expires_ns = now_ns + timeout_ns if timeout_ns else NEVER
    return min(expires_ns, request.deadline_ns) if request.deadline_ns else expires_ns


def _expire_level(level: _Level, now_ns: int) -> list[Ticket]:
    refused: list[Ticket] = []
    for waiting in (level.fresh, level.delayed):
        expired = [ticket for ticket in waiting if ticket.expires_ns <= now_ns]
        if not expired:
            continue
        kept = [ticket for ticket in waiting if ticket.expires_ns > now_ns]
        waiting.clear()
        waiting.extend(kept)
        for ticket in expired:
            deadline_ns = ticket.request.deadline_ns
            if level.policy.delay and not 0 < deadline_ns <= now_ns:
                ticket.expires_ns = deadline_ns or NEVER
                level.delayed.append(ticket)
            else:
                refused.append(ticket)
    return refused
