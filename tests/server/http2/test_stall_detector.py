"""Who is late: a minimum rate over a timeout, measured from look to look."""

from server.http2.stall_detector import BEGINS, ENDS, PeerWait, StallDetector

TIMEOUT_S, LOOK_S = 60.0, 15.0
LOOKS = int(TIMEOUT_S / LOOK_S)


def looks_until_late(*moved: int, size: int = 10**6, what: str = "message 1") -> int | None:
    """At which look a wait is late that has `moved` so much at each; None for never."""
    lateness = StallDetector(TIMEOUT_S)
    for number, bytes_moved in enumerate(moved):
        if lateness.look({1: PeerWait(what, size, size - bytes_moved, bytes_moved)}, LOOK_S):
            return number
    return None


def test_nothing_for_a_timeout_is_late():
    assert looks_until_late(*[7] * 10) == LOOKS


def test_one_byte_now_and_then_is_no_progress():
    assert looks_until_late(*range(10)) == LOOKS


def test_a_kibibyte_a_second_is_progress():
    assert looks_until_late(*range(0, 10**6, 1024 * 16)) is None


def test_a_large_message_must_come_within_an_hour():
    gib, hour = 2**30, 3600
    slow = range(0, gib, int(gib / hour * LOOK_S * 0.9))
    quick = range(0, gib, int(gib / hour * LOOK_S * 1.1))
    assert looks_until_late(*slow[:20], size=gib) == LOOKS
    assert looks_until_late(*quick[:20], size=gib) is None


def test_the_last_bytes_of_a_wait_are_enough():
    """An answer of which 10 bytes are left owes no more than these 10."""
    lateness = StallDetector(TIMEOUT_S)
    for sent in (0, 10, 20, 30, 40, 50, 60):
        assert lateness.look({1: PeerWait("stream", 10, 10, sent)}, LOOK_S) == []


def test_another_message_is_another_wait():
    lateness = StallDetector(TIMEOUT_S)
    for number in range(20):
        wait = PeerWait(f"message {number // 3}", 100, 100, 0)
        assert lateness.look({1: wait}, LOOK_S) == []


def test_what_is_over_is_forgotten():
    lateness = StallDetector(TIMEOUT_S)
    for _ in range(LOOKS):
        assert lateness.look({1: ENDS}, LOOK_S) == []
    assert lateness.look({}, LOOK_S) == []
    assert lateness.look({1: ENDS}, LOOK_S) == []


def test_a_request_of_which_nothing_comes_is_late_and_so_is_a_missing_end():
    lateness = StallDetector(TIMEOUT_S)
    for _ in range(LOOKS):
        assert lateness.look({1: BEGINS, 3: ENDS}, LOOK_S) == []
    assert lateness.look({1: BEGINS, 3: ENDS}, LOOK_S) == [1, 3]
