"""How many requests leave together: plain data in, a decision out."""

from schedulers.policy.merge import MergeDecision, MergeRules, cut
from schedulers.policy.queue import NEVER
from support.schedulers import ticket

MS = 1_000_000


def test_without_batching_every_request_runs_alone() -> None:
    assert cut([ticket(), ticket()], MergeRules(max_rows=0), 0) == MergeDecision(1, NEVER)


def test_without_delay_whatever_waits_is_sent() -> None:
    assert cut([ticket(), ticket(2)], MergeRules(max_rows=8), 0) == MergeDecision(2, NEVER)


def test_rows_are_counted_not_requests() -> None:
    waiting = [ticket(3), ticket(3), ticket(3)]
    assert cut(waiting, MergeRules(max_rows=8), 0).take == 2


def test_a_request_is_never_split() -> None:
    assert cut([ticket(1), ticket(8)], MergeRules(max_rows=8), 0).take == 1


def test_a_full_batch_is_exactly_filled() -> None:
    assert cut([ticket(4), ticket(4), ticket(1)], MergeRules(max_rows=8), 0).take == 2


def test_other_shapes_do_not_join() -> None:
    waiting = [ticket(shape_key="a"), ticket(shape_key="a"), ticket(shape_key="b")]
    assert cut(waiting, MergeRules(max_rows=8), 0).take == 2


def test_without_delay_the_largest_preferred_size_is_taken() -> None:
    rules = MergeRules(max_rows=8, preferred=frozenset({2, 4}))
    assert cut([ticket() for _ in range(7)], rules, 0).take == 4


def test_within_the_delay_a_preferred_size_leaves_at_once() -> None:
    rules = MergeRules(max_rows=8, preferred=frozenset({4}), delay_ns=5 * MS)
    assert cut([ticket() for _ in range(5)], rules, 1 * MS) == MergeDecision(4, NEVER)


def test_within_the_delay_too_few_wait_for_company_until_the_oldest_is_late() -> None:
    rules = MergeRules(max_rows=8, preferred=frozenset({4}), delay_ns=5 * MS)
    waiting = [ticket(arrived_ns=2 * MS), ticket(arrived_ns=3 * MS)]
    assert cut(waiting, rules, 4 * MS) == MergeDecision(0, 7 * MS)


def test_past_the_delay_what_waits_is_sent_even_if_not_preferred() -> None:
    rules = MergeRules(max_rows=8, preferred=frozenset({2, 4}), delay_ns=5 * MS)
    assert cut([ticket() for _ in range(3)], rules, 5 * MS).take == 3


def test_a_queue_that_waited_for_an_instance_leaves_in_preferred_sizes() -> None:
    rules = MergeRules(max_rows=8, preferred=frozenset({4}), delay_ns=5 * MS)
    waiting = [ticket() for _ in range(9)]
    sizes = []
    while waiting:
        sizes.append(cut(waiting, rules, 1000 * MS).take)
        del waiting[: sizes[-1]]
    assert sizes == [4, 4, 1]


def test_a_request_that_would_exceed_every_preferred_size_sends_those_before_it() -> None:
    # Triton's L0_batcher: test_multi_batch_sum_gt_max_preferred, {2, 6}, rows 3 and 4
    rules = MergeRules(max_rows=8, preferred=frozenset({2, 6}), delay_ns=5 * MS)
    assert cut([ticket(3), ticket(4)], rules, 0) == MergeDecision(1, NEVER)
    assert cut([ticket(4)], rules, 0) == MergeDecision(0, 5 * MS)
    assert cut([ticket(3), ticket(4)], MergeRules(8, frozenset({2, 6})), 0) == MergeDecision(
        1, NEVER
    )


def test_one_request_larger_than_every_preferred_size_leaves_at_once_alone() -> None:
    rules = MergeRules(max_rows=8, preferred=frozenset({2, 6}), delay_ns=5 * MS)
    assert cut([ticket(7), ticket(1)], rules, 0) == MergeDecision(1, NEVER)


def test_a_batch_that_cannot_grow_does_not_wait_for_the_delay() -> None:
    rules = MergeRules(max_rows=8, preferred=frozenset({8}), delay_ns=5 * MS)
    assert cut([ticket(3, shape_key=1), ticket(shape_key=2)], rules, 0).take == 1
    assert cut([ticket(7), ticket(2)], rules, 0).take == 1


def test_the_oldest_of_the_batch_decides_even_behind_a_younger_one() -> None:
    rules = MergeRules(max_rows=8, delay_ns=5 * MS)
    waiting = [ticket(arrived_ns=4 * MS), ticket(arrived_ns=1 * MS)]
    assert cut(waiting, rules, 6 * MS).take == 2
