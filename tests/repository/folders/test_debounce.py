"""When a folder has come to rest, without clock or disk."""

from pathlib import Path

from repository.folders.debounce import NOTHING, DebounceState, settle
from repository.folders.presence import States
from repository.folders.read import FolderState


def seen(**models: str) -> States:
    root = Path("root")
    return {(0, m): FolderState(m, root, root / m, side_digest=d) for m, d in models.items()}


def after(*scans: States, start: DebounceState = NOTHING) -> DebounceState:
    for scan in scans:
        start = settle(start, scan)
    return start


def test_a_new_model_counts_when_two_scans_in_a_row_saw_it_the_same():
    assert after(seen(a="1")).stable == {}
    assert after(seen(a="1"), seen(a="1")).stable == seen(a="1")


def test_a_model_that_is_being_copied_stays_away_and_holds_nobody_up():
    state = after(seen(a="1", b="1"), seen(a="2", b="1"), seen(a="3", b="1"))
    assert state.stable == seen(b="1")
    assert not state.at_rest


def test_a_changing_model_shows_its_last_stable_form():
    state = after(seen(a="old"), seen(a="old"), seen(a="x"), seen(a="y"))
    assert state.stable == seen(a="old")
    assert after(seen(a="y"), start=state).stable == seen(a="y")


def test_removal_is_believed_after_two_scans():
    state = after(seen(a="1", b="1"), seen(a="1", b="1"), seen(b="1"))
    assert state.stable == seen(a="1", b="1")
    assert after(seen(b="1"), start=state).stable == seen(b="1")


def test_a_model_that_vanishes_and_comes_back_never_went():
    state = after(seen(a="1"), seen(a="1"), seen(), seen(a="1"))
    assert state.stable == seen(a="1")
    assert after(seen(a="1"), start=state).at_rest


def test_a_model_that_flickers_in_is_never_believed():
    assert after(seen(), seen(a="1"), seen(), seen(a="1"), seen()).stable == {}


def test_nothing_moving_is_at_rest():
    assert after(seen(a="1"), seen(a="1")).at_rest
    assert NOTHING.at_rest
