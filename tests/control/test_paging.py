"""Lists in pages."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.deployments import repositories
from control.errors import Invalid
from control.events import history
from control.paging import cursor_of, key_of
from control.sql.database import Database
from support.control import ADA
from support.control_deploy import repository


def test_pages_follow_each_other_without_gap_or_repetition(database: Database) -> None:
    names = [f"repo-{number}" for number in range(5)]
    for name in names:
        repository(database, name)
    seen, cursor = [], None
    while True:
        with database.reading() as session:
            found = repositories.list_repositories(session, cursor=cursor, limit=2)
        seen += [item.name for item in found.items]
        cursor = found.next
        if cursor is None:
            break
    assert seen == names


def test_a_cursor_stays_good_while_rows_come_and_go(database: Database) -> None:
    for name in ("a", "c", "e"):
        repository(database, name)
    with database.reading() as session:
        cursor = repositories.list_repositories(session, limit=2).next
    repository(database, "b")
    repository(database, "d")
    with database.change(ADA) as tx:
        repositories.delete_repository(tx, "c")
    with database.reading() as session:
        rest = repositories.list_repositories(session, cursor=cursor)
    assert [item.name for item in rest.items] == ["d", "e"]


def test_the_last_full_page_has_no_next(database: Database) -> None:
    repository(database, "a")
    with database.reading() as session:
        assert repositories.list_repositories(session, limit=1).next is None


@pytest.mark.parametrize("limit", [0, -1, 501])
def test_a_limit_out_of_range_is_refused(database: Database, limit: int) -> None:
    with database.reading() as session, pytest.raises(Invalid, match="limit must be 1 to 500"):
        repositories.list_repositories(session, limit=limit)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "bnVsbA",
        cursor_of(("a", "b")),
        cursor_of((1,)),
        cursor_of(("\0",)),
        "[" * 5000,
    ],
)
def test_a_cursor_of_another_list_is_refused(database: Database, cursor: str) -> None:
    with database.reading() as session, pytest.raises(Invalid, match="cursor is none"):
        repositories.list_repositories(session, cursor=cursor)


def test_a_number_that_no_row_can_have_is_refused(database: Database) -> None:
    with database.reading() as session, pytest.raises(Invalid, match="cursor is none"):
        history.audit_page(session, cursor_of((2**63,)))


@given(st.text())
def test_any_text_is_a_cursor_or_invalid(text: str) -> None:
    with suppress(Invalid):
        assert isinstance(key_of(text, [str])[0], str)


@given(st.text(st.characters(categories=["L", "N"])), st.integers(-(2**63), 2**63 - 1))
def test_a_key_survives_its_cursor(name: str, number: int) -> None:
    assert key_of(cursor_of((name, number)), [str, int]) == (name, number)
