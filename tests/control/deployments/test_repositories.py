"""Git repositories as rows."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from control.deployments import aliases, repositories, versions
from control.errors import Conflict, Invalid, NotFound
from control.repository_settings import RepositorySettings, parse_settings
from control.sql.database import Database
from control.tables import Audit, Push, Version
from support.control import ADA, desired_revision, rows, told
from support.control_deploy import accepted, deployed, received, repository, sealed


def test_a_repository_is_there_with_its_settings_and_an_audit_row(database: Database) -> None:
    settings = parse_settings({"deploy_ref": "refs/heads/live", "budgets": {"max_files": 9}})
    repository(database, "vision", settings)
    with database.reading() as session:
        view = repositories.get_repository(session, "vision")
    assert (view.name, view.settings, view.revision) == ("vision", settings, 1)
    assert view.deploy_ref == "refs/heads/live"
    (row,) = rows(database, Audit)
    assert (row.actor, row.action, row.subject, row.before) == (
        ADA.principal,
        "repository.created",
        "repository:vision",
        None,
    )
    assert row.after["budgets"]["max_files"] == 9


@pytest.mark.parametrize("name", ["", "Vision", "-x", "a/b", "..", "a.git", "a b", "x" * 101])
def test_a_name_that_cannot_be_one_is_refused(database: Database, name: str) -> None:
    with pytest.raises(Invalid, match="cannot name a repository"):
        repository(database, name)


def test_a_taken_name_is_refused_to_all_but_one(database: Database) -> None:
    def make(_: int) -> bool:
        try:
            repository(database)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(make, range(4))) == 1


def test_an_unknown_one_is_refused_naming_those_there_are(database: Database) -> None:
    repository(database, "vision")
    with database.reading() as session:
        with pytest.raises(NotFound, match="no repository 'speech'; there are: vision"):
            repositories.get_repository(session, "speech")
        with pytest.raises(NotFound, match="no repository"):
            repositories.get_repository(session, "\0")


def test_a_change_is_compared_and_set(database: Database) -> None:
    repository(database)
    changed = parse_settings({"signing": "warn"})
    with database.change(ADA) as tx:
        assert repositories.change_repository(tx, "vision", changed, 1).revision == 2
    with pytest.raises(Conflict, match="revision 2, you have 1"), database.change(ADA) as tx:
        repositories.change_repository(tx, "vision", RepositorySettings(), 1)
    audit = rows(database, Audit)[-1]
    assert (audit.before["signing"], audit.after["signing"]) == ("off", "warn")


def test_the_same_settings_again_are_no_change(database: Database) -> None:
    repository(database)
    with database.change(ADA) as tx:
        assert repositories.change_repository(tx, "vision", RepositorySettings()).revision == 1
    assert told(database) == [("repository.created", "repository:vision")]


def test_a_deleted_repository_takes_its_models_along_but_not_what_versions_are(
    database: Database,
) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a"}))
    before = desired_revision(database)
    with database.change(ADA) as tx:
        repositories.delete_repository(tx, "vision")
    assert desired_revision(database) == before + 1
    assert rows(database, Push) == []
    (version,) = rows(database, Version)
    assert (version.repository_id, version.push_id, version.source) == (None, None, f"{1:040x}")
    with database.reading() as session:
        model = versions.get_model(session, "digits")
    assert (model.snapshot, model.repository) == (None, None)
    repository(database, "other")
    with pytest.raises(Conflict, match="other bytes under its existing version 1"):
        deployed(database, 2, sealed("digits", {1: "b"}), name="other")
    deployed(database, 3, sealed("digits", {2: "b"}), name="other")


def test_a_repository_whose_model_has_an_alias_stays(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a"}))
    with database.change(ADA) as tx:
        aliases.set_alias(tx, "digits", "champion", 1)
    with pytest.raises(Conflict, match="'digits' by champion"), database.change(ADA) as tx:
        repositories.delete_repository(tx, "vision")


def test_a_repository_stays_while_a_push_is_being_deployed(database: Database) -> None:
    repository(database)
    received(database, 1)
    push_id = accepted(database, 2)
    with pytest.raises(Conflict, match=push_id), database.change(ADA) as tx:
        repositories.delete_repository(tx, "vision")
