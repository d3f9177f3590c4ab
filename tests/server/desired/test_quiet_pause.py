"""How soon a gateway looks at its models again when nothing is being loaded."""

from server.desired.client import LONGEST_TICK_S, QUIET_TICK_S, quiet_pause_s


def test_one_slow_look_at_a_few_models_delays_the_next_by_little() -> None:
    assert quiet_pause_s(10.0, 0) == QUIET_TICK_S
    assert quiet_pause_s(10.0, 20) < 2 * QUIET_TICK_S


def test_looks_at_many_models_are_rarer_where_they_take_long() -> None:
    assert quiet_pause_s(0.0, 2000) == QUIET_TICK_S
    assert quiet_pause_s(0.005, 2000) == 10.0
    assert quiet_pause_s(10.0, 2000) == LONGEST_TICK_S
