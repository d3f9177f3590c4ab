"""Which state of a push may follow which."""

import itertools

import pytest

from control.push_states import ENDS, NEXT, UNFINISHED, PushState, may_follow

ALLOWED = {
    "received accepted",
    "received stored",
    "received abandoned",
    "accepted deployed",
    "accepted failed",
    "accepted superseded",
    "deployed served",
    "deployed failed",
    "deployed superseded",
    "abandoned accepted",
    "abandoned stored",
}


@pytest.mark.parametrize(("after", "state"), list(itertools.product(PushState, PushState)))
def test_only_these_steps_are_allowed(after: PushState, state: PushState) -> None:
    assert may_follow(state, after) == (f"{after} {state}" in ALLOWED)


def test_every_state_is_in_the_table_and_either_an_end_or_not() -> None:
    assert set(NEXT) == set(PushState) == set(ENDS) | set(UNFINISHED)
    assert not set(ENDS) & set(UNFINISHED)


def test_every_unfinished_push_can_end() -> None:
    def reachable(state: PushState) -> set[PushState]:
        return {state}.union(*(reachable(one) for one in NEXT[state]))

    assert all(reachable(state) & set(ENDS) for state in UNFINISHED)
