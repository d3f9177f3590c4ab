"""When a stream whose responses outrun the steps behind it is read on."""

from schedulers.ensembles.policy.stream_hold import (
    MOST_BEHIND,
    MOST_HELD,
    MOST_HELD_BYTES,
    PATIENCE_NS,
    STUCK_NS,
    Backlog,
    HoldVerdict,
    StreamHold,
)


def backlog(calls: int) -> Backlog:
    return Backlog(calls, 0)


def test_a_stream_is_held_back_while_many_calls_wait_and_some_end() -> None:
    hold = StreamHold()
    assert hold.decide(backlog(MOST_BEHIND - 1), 0, 0) is HoldVerdict.READ
    for progress in range(5):
        now_ns = progress * (PATIENCE_NS - 1)
        assert hold.decide(backlog(MOST_BEHIND), progress, now_ns) is HoldVerdict.WAIT


def test_one_that_is_held_back_in_vain_is_read_on_until_some_call_ends() -> None:
    hold = StreamHold()
    assert hold.decide(backlog(MOST_BEHIND), 7, 0) is HoldVerdict.WAIT
    assert hold.decide(backlog(MOST_BEHIND), 7, PATIENCE_NS) is HoldVerdict.READ
    assert hold.decide(backlog(MOST_BEHIND + 1), 7, PATIENCE_NS + 1) is HoldVerdict.READ
    assert hold.decide(backlog(MOST_BEHIND + 1), 8, PATIENCE_NS + 2) is HoldVerdict.WAIT


def test_reading_on_has_a_bound_in_calls_and_in_bytes_and_an_end() -> None:
    for waiting in (Backlog(MOST_HELD, 0), Backlog(MOST_BEHIND, MOST_HELD_BYTES)):
        hold = StreamHold()
        assert hold.decide(waiting, 0, 0) is HoldVerdict.WAIT
        for now_ns, is_stuck in ((STUCK_NS - 1, False), (STUCK_NS, True)):
            assert hold.decide(waiting, 0, now_ns) is HoldVerdict.FULL
            assert hold.is_stuck(False, now_ns) is is_stuck


def test_a_call_that_executes_may_take_as_long_as_it_takes() -> None:
    hold, waiting = StreamHold(), backlog(MOST_HELD)
    hold.decide(waiting, 0, 0)
    for now_ns in (STUCK_NS, 100 * STUCK_NS):
        assert hold.decide(waiting, 0, now_ns) is HoldVerdict.FULL
        assert not hold.is_stuck(True, now_ns)
    assert not hold.is_stuck(False, 101 * STUCK_NS - 1)
    assert hold.is_stuck(False, 101 * STUCK_NS)


def test_calls_that_end_one_by_one_let_no_more_be_read_than_the_bound() -> None:
    hold, size_bytes, calls = StreamHold(), 1 << 20, MOST_BEHIND
    for ended in range(200):
        began_ns = ended * 3 * PATIENCE_NS
        for now_ns in (began_ns, began_ns + 2 * PATIENCE_NS):
            waiting = Backlog(calls, calls * size_bytes)
            while hold.decide(waiting, ended, now_ns) is HoldVerdict.READ:
                calls += 1
                waiting = Backlog(calls, calls * size_bytes)
        assert waiting.size_bytes <= MOST_HELD_BYTES
        calls -= 1
    assert waiting.size_bytes == MOST_HELD_BYTES


def test_a_client_that_does_not_read_is_no_reason_to_read_on_or_to_fail() -> None:
    hold = StreamHold()
    assert hold.decide(backlog(MOST_HELD), 0, 0) is HoldVerdict.WAIT
    hold.excuse()
    assert hold.decide(backlog(MOST_HELD), 0, STUCK_NS) is HoldVerdict.WAIT
