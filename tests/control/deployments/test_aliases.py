"""Aliases are moved by compare-and-set, and only to what exists."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from control import loads
from control.deployments import aliases
from control.errors import Conflict, Invalid, NotFound
from control.sql.database import Database
from control.tables import Alias, Audit
from support.control import ADA, desired_revision, rows, told
from support.control_deploy import deployed, repository, sealed


@pytest.fixture(autouse=True)
def digits(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a", 2: "b"}))


def _set(
    database: Database, version: int, expected: int | None = None, name: str = "champion"
) -> aliases.AliasView:
    with database.change(ADA) as tx:
        return aliases.set_alias(tx, "digits", name, version, expected)


def test_an_alias_is_made_moved_and_deleted_and_gateways_are_told(database: Database) -> None:
    revision = desired_revision(database)
    assert _set(database, 1, 0).revision == 1
    moved = _set(database, 2, 1)
    assert (moved.version, moved.revision, moved.updated_by) == (2, 2, ADA.principal)
    with database.change(ADA) as tx:
        aliases.delete_alias(tx, "digits", "champion", 2)
    assert [kind for kind, subject in told(database) if subject == "alias:digits@champion"] == [
        "alias.created",
        "alias.moved",
        "alias.deleted",
    ]
    assert desired_revision(database) == revision + 3
    assert rows(database, Alias) == []
    audit = [row for row in rows(database, Audit) if row.action == "alias.moved"]
    assert (audit[0].before["version"], audit[0].after["version"]) == (1, 2)


def test_moving_it_to_where_it_stands_changes_nothing(database: Database) -> None:
    _set(database, 1)
    before = told(database)
    assert _set(database, 1).revision == 1
    assert told(database) == before


def test_an_alias_that_was_moved_meanwhile_is_not_moved(database: Database) -> None:
    _set(database, 1)
    _set(database, 2)
    with pytest.raises(Conflict, match="alias 'digits@champion' has been changed meanwhile"):
        _set(database, 1, 1)
    with pytest.raises(Conflict, match="revision 2, you have 0"):
        _set(database, 1, 0)
    with pytest.raises(Conflict, match="revision 0, you have 3"):
        _set(database, 1, 3, "new")


def test_of_many_that_move_it_at_once_one_wins(database: Database) -> None:
    _set(database, 1)

    def move(_: int) -> bool:
        try:
            _set(database, 2, 1)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(move, range(4))) == 1


def test_a_version_that_does_not_exist_is_refused_naming_those_there_are(
    database: Database,
) -> None:
    with pytest.raises(Invalid, match="'digits' has no version 3; it has 1, 2"):
        _set(database, 3)


@pytest.mark.parametrize("name", ["", "1", "Best", "-a", "a b", "a@b", "é", "x" * 64])
def test_a_name_that_cannot_be_one_is_refused(database: Database, name: str) -> None:
    with pytest.raises(Invalid, match="cannot name an alias"):
        _set(database, 1, name=name)


def test_a_model_in_a_folder_has_the_versions_that_gateways_tell_of(database: Database) -> None:
    with database.change(ADA) as tx:
        loads.record(tx, "one", [("words", 0, "READY", ""), ("words", 4, "READY", "")])
    with database.change(ADA) as tx:
        assert aliases.set_alias(tx, "words", "best", 4).version == 4
    none = "'words' has no version 5; it has 4"
    with pytest.raises(Invalid, match=none), database.change(ADA) as tx:
        aliases.set_alias(tx, "words", "best", 5)


def test_a_model_that_nobody_knows_or_that_was_undeployed_has_no_alias(database: Database) -> None:
    with pytest.raises(NotFound, match="no model 'words'"), database.change(ADA) as tx:
        aliases.set_alias(tx, "words", "best", 1)
    deployed(database, 2)
    with database.change(ADA) as tx:
        loads.record(tx, "one", [("digits", 1, "DRAINING", "")])
    with pytest.raises(NotFound, match="no model 'digits' deployed"):
        _set(database, 1)


def test_a_version_that_the_commit_no_longer_has_can_still_be_named(database: Database) -> None:
    deployed(database, 2, sealed("digits", {2: "b"}))
    assert _set(database, 1).version == 1


def test_an_unknown_alias_is_refused_naming_those_there_are(database: Database) -> None:
    _set(database, 1)
    with database.reading() as session:
        with pytest.raises(NotFound, match="no alias 'digits@best'; it has champion"):
            aliases.get_alias(session, "digits", "best")
        with pytest.raises(NotFound, match="it has none"):
            aliases.get_alias(session, "\0", "best")
    with pytest.raises(NotFound), database.change(ADA) as tx:
        aliases.delete_alias(tx, "digits", "best")


def test_aliases_are_listed_by_model_and_name(database: Database) -> None:
    for name in ("champion", "best"):
        _set(database, 1, name=name)
    with database.reading() as session:
        found = aliases.list_aliases(session, "digits")
        assert [alias.name for alias in found.items] == ["best", "champion"]
        assert aliases.list_aliases(session, "words").items == ()
        assert len(aliases.list_aliases(session, limit=1).items) == 1


def test_a_model_has_so_many_aliases_and_no_more(database: Database) -> None:
    with database.change(ADA) as tx:
        for number in range(aliases.MOST_PER_MODEL):
            aliases.set_alias(tx, "digits", f"a{number}", 1)
    with pytest.raises(Conflict, match="100 aliases; delete one first"):
        _set(database, 1)
    assert _set(database, 2, name="a0").version == 2
