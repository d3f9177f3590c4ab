"""Which state of an import may follow which."""

import itertools

import pytest

from control.import_states import ENDS, NEXT, UNFINISHED, ImportState, may_follow

ALLOWED = {
    "queued fetching",
    "fetching checking",
    "checking deployed",
    "deployed served",
    "deployed failed",
    *(f"{state} failed" for state in ("queued", "fetching", "checking")),
    *(f"{state} cancelled" for state in ("queued", "fetching", "checking")),
}


@pytest.mark.parametrize(("after", "state"), list(itertools.product(ImportState, ImportState)))
def test_only_these_steps_are_allowed(after: ImportState, state: ImportState) -> None:
    assert may_follow(state, after) == (f"{after} {state}" in ALLOWED)


def test_every_state_is_in_the_table_and_either_an_end_or_not() -> None:
    assert set(NEXT) == set(ImportState) == set(ENDS) | set(UNFINISHED)
    assert not set(ENDS) & set(UNFINISHED)
