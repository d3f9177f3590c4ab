"""What waits: bounds, priorities, timeouts. Time is an argument."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.errors import QueueFull
from schedulers.policy.queue import NEVER, BatchQueue, QueuePolicy
from support.schedulers import ticket


def test_requests_leave_in_order_of_arrival() -> None:
    queue = BatchQueue(QueuePolicy(max_size=10))
    first, second = ticket(), ticket()
    queue.push(first, 0)
    queue.push(second, 1)
    assert queue.take(2) == [first, second]
    assert len(queue) == 0


def test_a_full_queue_refuses_in_tritons_words() -> None:
    queue = BatchQueue(QueuePolicy(max_size=1))
    queue.push(ticket(), 0)
    with pytest.raises(QueueFull, match=r"^Exceeds maximum queue size$"):
        queue.push(ticket(), 0)


def test_a_higher_priority_leaves_first_and_levels_have_their_own_bounds() -> None:
    queue = BatchQueue(
        QueuePolicy(max_size=10), {1: QueuePolicy(max_size=1)}, count=3, default_level=2
    )
    low, default, high = ticket(priority=3), ticket(), ticket(priority=1)
    for one in (low, default, high):
        queue.push(one, 0)
    with pytest.raises(QueueFull):
        queue.push(ticket(priority=1), 0)
    assert queue.take(3) == [high, default, low]


def test_a_priority_beyond_the_levels_means_the_default_level() -> None:
    queue = BatchQueue(QueuePolicy(max_size=10), {}, count=2, default_level=1)
    odd, low = ticket(priority=9), ticket(priority=2)
    queue.push(low, 0)
    queue.push(odd, 0)
    assert queue.take(2) == [odd, low]


def test_an_expired_request_is_handed_back_once() -> None:
    queue = BatchQueue(QueuePolicy(max_size=10, timeout_ns=100))
    early, late = ticket(), ticket()
    queue.push(early, 0)
    queue.push(late, 50)
    assert queue.next_expiry_ns == 100
    assert queue.expire(99) == []
    assert queue.expire(100) == [early]
    assert queue.next_expiry_ns == 150
    assert queue.take(5) == [late]


def test_with_delay_an_expired_request_is_served_last() -> None:
    queue = BatchQueue(QueuePolicy(max_size=10, timeout_ns=100, delay=True))
    expired, fresh = ticket(), ticket()
    queue.push(expired, 0)
    queue.push(fresh, 90)
    assert queue.expire(120) == []
    assert queue.take(2) == [fresh, expired]


def test_a_hard_deadline_refuses_even_where_timeouts_delay() -> None:
    queue = BatchQueue(QueuePolicy(max_size=10, timeout_ns=100, delay=True))
    doomed = ticket(deadline_ns=150)
    queue.push(doomed, 0)
    assert queue.expire(100) == []
    assert queue.expire(150) == [doomed]


def test_a_client_may_shorten_the_timeout_where_allowed() -> None:
    allowed = BatchQueue(QueuePolicy(max_size=10, timeout_ns=9_000, allow_override=True))
    allowed.push(ticket(timeout_us=1), 0)
    assert allowed.next_expiry_ns == 1_000
    longer = BatchQueue(QueuePolicy(max_size=10, timeout_ns=9_000, allow_override=True))
    longer.push(ticket(timeout_us=100), 0)
    assert longer.next_expiry_ns == 9_000
    refused = BatchQueue(QueuePolicy(max_size=10, timeout_ns=9_000, allow_override=False))
    refused.push(ticket(timeout_us=1), 0)
    assert refused.next_expiry_ns == 9_000


def test_without_timeouts_nothing_ever_expires() -> None:
    queue = BatchQueue(QueuePolicy(max_size=10))
    queue.push(ticket(), 0)
    assert queue.next_expiry_ns == NEVER
    assert queue.expire(NEVER - 1) == []


def test_cancelled_requests_are_dropped_and_counted() -> None:
    queue = BatchQueue(QueuePolicy(max_size=3))
    tickets = [ticket(), ticket(), ticket()]
    for one in tickets:
        queue.push(one, 0)
    tickets[0].cancel()
    assert queue.drop_cancelled() == 1
    tickets[2].cancel()
    assert queue.drop_cancelled() == 0
    assert queue.forget_cancelled() == 1
    assert list(queue) == [tickets[1]]


def test_a_level_takes_memory_only_while_something_waits_in_it() -> None:
    """2**64 - 1 levels took all memory before the first request."""
    tracemalloc.start()
    try:
        queue = BatchQueue(QueuePolicy(max_size=2), {}, count=2**64 - 1, default_level=7)
        for round in range(2_000):
            one = ticket(priority=2**63 + round)
            queue.push(one, 0)
            assert queue.take(1) == [one]
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.lists(st.one_of(st.integers(0, 60), st.none()), max_size=300))
def test_requests_leave_by_level_then_by_arrival_whichever_levels_were_empty_before(
    steps: list[int | None],
) -> None:
    queue = BatchQueue(QueuePolicy(max_size=1000), {}, count=50, default_level=25)
    waiting: list[tuple[int, int]] = []
    for number, priority in enumerate(steps):
        if priority is None:
            taken = [int(one.request.id) for one in queue.take(2)]
            waiting.sort()
            assert taken == [arrived for _, arrived in waiting[:2]]
            del waiting[:2]
        else:
            queue.push(ticket(priority=priority, id=str(number)), 0)
            waiting.append((priority if 0 < priority <= 50 else 25, number))
    assert len(queue) == len(waiting)
