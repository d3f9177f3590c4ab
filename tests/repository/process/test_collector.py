"""Imports without the garbage collector."""

import gc
import weakref

from repository.process.collector import no_collection


def test_what_is_there_at_the_end_is_not_looked_at_again() -> None:
    frozen = gc.get_freeze_count()
    with no_collection():
        assert not gc.isenabled()
        kept = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_one_within_another_leaves_the_collector_as_the_outer_one_found_it() -> None:
    with no_collection():
        with no_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_cycles_that_a_load_leaves_are_collected_at_its_end() -> None:
    with no_collection(loads=True):
        left, kept = weakref.ref(Cycle()), Cycle()
        assert left() is not None
    assert left() is None
    assert kept.me is kept
    assert gc.isenabled()
