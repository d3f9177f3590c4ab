"""A sequence stays with the version that saw its start."""

import pytest

from control.desired import DesiredState
from schedulers.reply import Reply
from schedulers.request import InferRequest, Sequence
from server.routing import arm_counters_registry
from server.routing.routing import Routing
from server.routing.sequences import IDLE_S, Sequences
from server.routing.table import Target, compile_route
from support.routing import Request, halves, route

STABLE, CANDIDATE = compile_route(halves(), {}).loose


def stay(seen: Sequences, target: Target, sequence: Sequence, now: float) -> Target:
    """Where the request goes, which is remembered."""
    found = seen.find(target, sequence, now)
    seen.keep(found, sequence, now)
    return found


def test_it_stays_where_it_began_until_it_ends() -> None:
    seen = Sequences()
    assert stay(seen, STABLE, Sequence(7, True, False), 0.0) is STABLE
    assert stay(seen, CANDIDATE, Sequence(7, False, False), 1.0).key == STABLE.key
    assert stay(seen, CANDIDATE, Sequence(8, False, False), 1.0) is CANDIDATE
    assert stay(seen, CANDIDATE, Sequence(7, False, True), 2.0).key == STABLE.key
    assert stay(seen, CANDIDATE, Sequence(7, False, False), 3.0) is CANDIDATE


def test_a_new_start_or_a_long_silence_begins_anew() -> None:
    seen = Sequences()
    stay(seen, STABLE, Sequence(7, True, False), 0.0)
    assert stay(seen, CANDIDATE, Sequence(7, True, False), 1.0) is CANDIDATE
    assert stay(seen, STABLE, Sequence(7, False, False), 2.0 + IDLE_S) is STABLE


def test_the_arm_that_a_sequence_leaves_is_told_of() -> None:
    seen = Sequences()
    assert seen.keep(STABLE, Sequence(7, True, False), 0.0) is None
    assert seen.keep(STABLE, Sequence(7, False, False), 1.0) is None
    left = seen.keep(CANDIDATE, Sequence(7, True, False), 2.0)
    assert left is not None
    assert left.key == STABLE.key


def test_an_arm_that_a_sequence_left_long_ago_is_not_told_of() -> None:
    seen = Sequences()
    seen.keep(STABLE, Sequence(7, True, False), 0.0)
    assert seen.keep(CANDIDATE, Sequence(7, True, False), 1.0 + IDLE_S) is None


def test_the_one_that_was_silent_longest_is_forgotten() -> None:
    seen = Sequences(most=2)
    for key in (1, 2, 1, 3):
        stay(seen, STABLE, Sequence(key, False, False), 0.0)
    assert stay(seen, CANDIDATE, Sequence(1, False, False), 0.0).key == STABLE.key
    assert stay(seen, CANDIDATE, Sequence(2, False, False), 0.0) is CANDIDATE


def _send(target: Target, request: InferRequest, until_ns: int) -> Reply:
    raise AssertionError("no copies here")


def test_the_rest_of_a_sequence_counts_where_it_is_told_of_though_its_arm_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arm_counters_registry, "MOST_RETIRED", 0)
    routing = Routing(_send)
    routing.use(DesiredState(routes=(halves(only="stable"),)))
    began = routing.pick(routing.table["numbers"], "ada")
    routing.keep(began, Sequence(7, True, False))
    routing.use(DesiredState(routes=(route(("candidate", 2, 100)),)))
    meant = routing.pick(routing.table["numbers"], "ada")
    goes_on = Request(((b"x-user", b"ada"),), Sequence(7, False, False))
    stays = routing.select(routing.table["numbers"], goes_on)
    assert (meant.arm, stays.arm) == ("candidate", "stable")
    stays.window.refused()
    told = {
        (row.arm, row.outcomes.counts.requests)
        for rows in routing.windows.snapshot(False)
        for row in rows
    }
    assert told == {("stable", 1)}


def test_an_arm_goes_on_counting_where_it_was_when_its_route_changes() -> None:
    routing = Routing(_send)
    routing.use(DesiredState(routes=(halves(only="stable"),)))
    before = routing.pick(routing.table["numbers"], "ada")
    before.window.refused()
    routing.use(DesiredState(routes=(halves(only="stable", unit=""),)))
    after = routing.pick(routing.table["numbers"], "ada")
    assert after is not before
    assert after.window.errors == 1
