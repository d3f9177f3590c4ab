"""Which executions run on the event loop's thread: those that were short, and stay so."""

from schedulers.policy.inline import (
    FIRST_PAUSE_NS,
    HANDOVER_NS,
    LONG_NS,
    MOST_PAUSE_NS,
    SHORT_NS,
    STAY,
    TRIALS,
    InlinePolicy,
)


def tried(cpu_ns: int, rows: int = 1, policy: InlinePolicy | None = None) -> InlinePolicy:
    policy = policy or InlinePolicy()
    for _ in range(TRIALS):
        policy.ran(rows, cpu_ns, 0)
    return policy


def test_nothing_runs_on_the_loop_before_it_was_tried_on_the_thread() -> None:
    policy = InlinePolicy()
    for _ in range(TRIALS - 1):
        policy.ran(1, 1_000, 0)
        assert not policy.may_run(1, True, 0)
    policy.ran(1, 1_000, 0)
    assert policy.may_run(1, True, 0)


def test_what_takes_less_than_a_hand_over_runs_on_the_loop_whatever_else_is_to_do() -> None:
    assert tried(HANDOVER_NS).may_run(1, False, 0)
    assert not tried(HANDOVER_NS + 1).may_run(1, False, 0)


def test_a_lone_request_may_take_longer() -> None:
    assert tried(SHORT_NS).may_run(1, True, 0)
    assert not tried(SHORT_NS).may_run(1, False, 0)
    assert not tried(SHORT_NS + 1).may_run(1, True, 0)


def test_sizes_that_were_not_tried_run_on_the_thread() -> None:
    policy = tried(1_000, rows=4)
    assert policy.may_run(7, False, 0)
    assert not policy.may_run(3, False, 0)
    assert not policy.may_run(8, False, 0)


def test_a_size_leaves_the_loop_only_when_it_is_clearly_above_the_bound() -> None:
    policy = tried(HANDOVER_NS)
    tried(int(HANDOVER_NS * STAY), policy=policy)
    assert policy.may_run(1, False, 0)
    for _ in range(8):
        tried(HANDOVER_NS * 2, policy=policy)
    assert not policy.may_run(1, False, 0)
    for _ in range(8):
        tried(int(HANDOVER_NS * STAY) - 1, policy=policy)
    assert not policy.may_run(1, False, 0)


def test_one_long_execution_of_a_short_size_closes_the_loop_for_a_while() -> None:
    policy = tried(1_000)
    policy.ran(1, LONG_NS, 5)
    tried(1_000, policy=policy)
    assert not policy.may_run(1, True, 5 + FIRST_PAUSE_NS - 1)
    assert policy.may_run(1, True, 5 + FIRST_PAUSE_NS)


def test_a_long_execution_soon_after_another_closes_the_loop_for_twice_as_long() -> None:
    policy, now_ns, pause_ns = InlinePolicy(), 0, FIRST_PAUSE_NS
    for _ in range(20):
        closed(policy, now_ns, pause_ns)
        now_ns += 2 * pause_ns - 1
        pause_ns = min(2 * pause_ns, MOST_PAUSE_NS)


def test_long_executions_on_the_thread_do_not_keep_the_loop_closed_for_longer() -> None:
    policy = tried(1_000)
    for now_ns in range(5):
        policy.ran(1, LONG_NS, now_ns)
        tried(1_000, policy=policy)
    for _ in range(4):
        tried(1_000, policy=policy)
    assert policy.may_run(1, True, FIRST_PAUSE_NS)


def test_a_long_execution_long_after_another_is_the_first_again() -> None:
    policy = InlinePolicy()
    for number in range(20):
        closed(policy, number * 2 * FIRST_PAUSE_NS, FIRST_PAUSE_NS)


def closed(policy: InlinePolicy, now_ns: int, pause_ns: int) -> None:
    """A long execution closes the loop for just so long."""
    tried(1_000, policy=policy)
    policy.ran(1, LONG_NS, now_ns)
    tried(1_000, policy=policy)
    assert not policy.may_run(1, True, now_ns + pause_ns - 1)
    assert policy.may_run(1, True, now_ns + pause_ns)


def test_sizes_that_are_always_long_say_nothing_of_short_ones() -> None:
    policy = tried(5 * LONG_NS, rows=64)
    tried(1_000, policy=policy)
    assert policy.may_run(1, False, 0)
    policy.ran(64, 5 * LONG_NS, 0)
    assert policy.may_run(1, False, 0)
