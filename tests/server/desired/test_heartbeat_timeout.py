"""A process is called stopped only for silence that its watcher was there to hear."""

from hypothesis import given
from hypothesis import strategies as st

from server.desired.heartbeat_timeout import LONGEST_GAP_S, SILENT_S, START_S, HeartbeatTimeout


def stopped_after(silence: HeartbeatTimeout, now: float, every_s: float = 1.0) -> float:
    """Seconds of looks without a beat until it counts as stopped."""
    began = now
    while not silence.look(0, now):
        now += every_s
    return now - began


def test_a_process_that_falls_silent_counts_as_stopped_after_its_time() -> None:
    silence = HeartbeatTimeout(0.0)
    silence.look(1, 1.0)
    assert SILENT_S <= stopped_after(silence, 1.0) <= SILENT_S + 2


def test_one_that_is_still_starting_has_longer() -> None:
    assert START_S <= stopped_after(HeartbeatTimeout(0.0), 0.0) <= START_S + 2


def test_one_that_a_signal_stopped_at_its_start_does_not() -> None:
    silence, now = HeartbeatTimeout(0.0), 0.0
    while not silence.look(0, now, is_stopped=True):
        now += 1.0
    assert SILENT_S <= now <= SILENT_S + 2


def test_a_watcher_that_did_not_run_itself_gives_all_the_time_anew() -> None:
    silence = HeartbeatTimeout(0.0)
    silence.look(1, 1.0)
    for second in range(int(SILENT_S)):
        assert not silence.look(0, 1.0 + second)
    after_suspend = 10_000.0
    assert not silence.look(0, after_suspend)
    assert SILENT_S <= stopped_after(silence, after_suspend) <= SILENT_S + 2


def test_a_watcher_that_runs_in_fits_never_kills() -> None:
    silence = HeartbeatTimeout(0.0)
    silence.look(1, 1.0)
    assert not any(silence.look(0, 1.0 + 5.0 * number) for number in range(100))


@given(
    st.lists(st.tuples(st.floats(0.1, 60.0), st.integers(0, 3)), max_size=300),
)
def test_silence_is_never_counted_longer_than_it_was_heard(looks: list[tuple[float, int]]) -> None:
    silence, now, heard_s = HeartbeatTimeout(0.0), 0.0, 0.0
    for gap_s, beats in looks:
        now += gap_s
        heard_s = 0.0 if beats or gap_s > LONGEST_GAP_S else heard_s + gap_s
        stopped = silence.look(beats, now)
        assert stopped == (heard_s > (SILENT_S if silence.began else START_S))
