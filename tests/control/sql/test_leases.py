"""Who may act alone: one at a time, and whoever comes later has the greater fence."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from control.errors import LostLease
from control.sql.database import SYSTEM, Database, Fence
from control.sql.leases import release, take
from control.tables import Event, Lease, Meta
from support.control import rows

LONG_S = 600.0


def test_a_lease_has_one_holder_at_a_time(database: Database) -> None:
    assert take(database, "deployer", "first", LONG_S) == Fence("deployer", 1)
    assert take(database, "deployer", "second", LONG_S) is None
    assert take(database, "sweeper", "second", LONG_S) == Fence("sweeper", 1)


def test_its_holder_keeps_it_under_the_same_fence(database: Database) -> None:
    for _ in range(3):
        assert take(database, "deployer", "first", LONG_S) == Fence("deployer", 1)


def test_it_is_written_anew_only_when_less_than_half_of_it_is_left(database: Database) -> None:
    def kept() -> datetime:
        ((until,),) = [(row.until,) for row in rows(database, Lease)]
        return until

    take(database, "deployer", "first", LONG_S)
    until = kept()
    take(database, "deployer", "first", LONG_S)
    assert kept() == until
    take(database, "deployer", "first", 3 * LONG_S)
    assert kept() > until


def test_one_that_has_run_out_goes_to_the_next_with_a_greater_fence(database: Database) -> None:
    take(database, "deployer", "first", 0)
    assert take(database, "deployer", "second", LONG_S) == Fence("deployer", 2)
    assert take(database, "deployer", "first", LONG_S) is None


def test_one_that_ran_out_unnoticed_is_still_its_holders(database: Database) -> None:
    take(database, "deployer", "first", 0)
    assert take(database, "deployer", "first", LONG_S) == Fence("deployer", 1)


def test_one_that_is_released_goes_to_the_next_at_once(database: Database) -> None:
    take(database, "deployer", "first", LONG_S)
    release(database, "deployer", "second")
    assert take(database, "deployer", "second", LONG_S) is None, "not its to release"
    release(database, "deployer", "first")
    assert take(database, "deployer", "second", LONG_S) == Fence("deployer", 2)
    release(database, "nothing", "second")


def test_of_many_who_reach_for_it_one_gets_it(database: Database) -> None:
    def reach(number: int) -> Fence | None:
        return take(database, "deployer", f"server {number}", LONG_S)

    with ThreadPoolExecutor(6) as pool:
        got = [fence for fence in pool.map(reach, range(6)) if fence is not None]
    assert got == [Fence("deployer", 1)]


def test_a_change_under_the_lease_is_made_while_it_is_held(database: Database) -> None:
    fence = take(database, "deployer", "first", LONG_S)
    with database.change(SYSTEM, fence) as tx:
        tx.happened("test.done", "test:1")
    assert len(rows(database, Event)) == 1


@pytest.mark.parametrize("next_holder", ["second", None])
def test_a_change_under_a_lost_lease_is_not_made(
    database: Database, next_holder: str | None
) -> None:
    fence = take(database, "deployer", "first", 0)
    if next_holder:
        take(database, "deployer", next_holder, LONG_S)
    else:
        fence = Fence("never taken", 1)
    with pytest.raises(LostLease, match="newer holder"), database.change(SYSTEM, fence) as tx:
        tx.happened("test.done", "test:1")
    assert rows(database, Event) == []


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite has one writer
def test_a_lease_lost_in_the_middle_of_a_change_undoes_it(database: Database) -> None:
    fence = take(database, "deployer", "first", 0)

    def change() -> None:
        with database.change(SYSTEM, fence) as tx:
            tx.session.add(Meta(key="colour", value="red"))
            tx.session.flush()
            take(database, "deployer", "second", LONG_S)

    with pytest.raises(LostLease):
        change()
    assert rows(database, Meta) == []
