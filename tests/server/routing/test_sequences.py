"""A sequence stays with the version that saw its start."""

from routing_support import halves
from schedulers.request import Sequence
from server.routing.sequences import IDLE_S, Sequences
from server.routing.table import compile_route

STABLE, CANDIDATE = compile_route(halves(), {}).loose


def test_it_stays_where_it_began_until_it_ends() -> None:
    seen = Sequences()
    assert seen.stay(STABLE, Sequence(7, True, False), 0.0) is STABLE
    assert seen.stay(CANDIDATE, Sequence(7, False, False), 1.0).key == STABLE.key
    assert seen.stay(CANDIDATE, Sequence(8, False, False), 1.0) is CANDIDATE
    assert seen.stay(CANDIDATE, Sequence(7, False, True), 2.0).key == STABLE.key
    assert seen.stay(CANDIDATE, Sequence(7, False, False), 3.0) is CANDIDATE


def test_a_new_start_or_a_long_silence_begins_anew() -> None:
    seen = Sequences()
    seen.stay(STABLE, Sequence(7, True, False), 0.0)
    assert seen.stay(CANDIDATE, Sequence(7, True, False), 1.0) is CANDIDATE
    assert seen.stay(STABLE, Sequence(7, False, False), 2.0 + IDLE_S) is STABLE


def test_the_one_that_was_silent_longest_is_forgotten() -> None:
    seen = Sequences(most=2)
    for key in (1, 2, 1, 3):
        seen.stay(STABLE, Sequence(key, False, False), 0.0)
    assert seen.stay(CANDIDATE, Sequence(1, False, False), 0.0).key == STABLE.key
    assert seen.stay(CANDIDATE, Sequence(2, False, False), 0.0) is CANDIDATE
