"""What a deployment moves, and what it refuses."""

import pytest

from control.deployments import aliases
from control.deployments.deployment import (
    KEPT,
    Origin,
    changed_versions,
    deploy_models,
    forget_snapshots,
    owner_of,
)
from control.deployments.sealed_model import SealedModel
from control.errors import Conflict, Invalid
from control.sql.database import Database
from control.tables import Model, SnapshotRow, Version
from support.control import ADA, desired_revision, rows, told
from support.control_deploy import accepted, commit, deploy, deployed, digest, repository, sealed


@pytest.fixture(autouse=True)
def vision(database: Database) -> None:
    repository(database)


def test_a_version_remembers_where_it_came_from_for_ever(database: Database) -> None:
    push = deployed(database, 1, sealed("digits", {1: "a"}))
    deployed(database, 2, sealed("digits", {1: "a"}, "another config"))
    (version,) = rows(database, Version)
    assert (version.digest, version.push_id) == (digest("a"), push.id)
    assert (version.source, version.pusher) == (commit(1), ADA.principal)
    assert (version.checks, version.signer) == ({"config": "ok"}, "ci@example.org")
    assert version.snapshot_digest == sealed("digits", {1: "a"}).digest


def test_a_changed_config_moves_the_snapshot_and_makes_no_version(database: Database) -> None:
    deployed(database, 1, sealed("digits", {1: "a"}))
    deployed(database, 2, sealed("digits", {1: "a"}, "another config"))
    (model,) = rows(database, Model)
    assert (model.commit, model.revision) == (commit(2), 2)
    assert len(rows(database, SnapshotRow)) == 2
    assert told(database).count(("version.added", "version:digits@1")) == 1


def test_what_a_commit_does_not_touch_stays_as_it_is(database: Database) -> None:
    words = sealed("words", {1: "w"})
    deployed(database, 1, sealed("digits", {1: "a"}), words)
    view = deployed(database, 2, sealed("digits", {1: "a", 2: "b"}), words)
    assert set(view.models) == {"digits"}
    assert {row.name: row.commit for row in rows(database, Model)} == {
        "digits": commit(2),
        "words": commit(1),
    }


def test_a_commit_that_changes_nothing_tells_gateways_nothing(database: Database) -> None:
    deployed(database, 1, sealed("digits", {1: "a"}))
    revision = desired_revision(database)
    view = deployed(database, 2, sealed("digits", {1: "a"}))
    assert (view.state, view.models) == ("deployed", {})
    assert desired_revision(database) == revision


def test_new_bytes_under_an_existing_version_are_refused_and_nothing_moves(
    database: Database,
) -> None:
    deployed(database, 1, sealed("digits", {1: "a", 2: "b"}))
    push_id = accepted(database, 2)
    with pytest.raises(Conflict, match="'digits' has other bytes under its existing version 2"):
        deploy(database, push_id, sealed("words", {1: "w"}), sealed("digits", {1: "a", 2: "x"}))
    assert [row.name for row in rows(database, Model)] == ["digits"]
    assert len(rows(database, Version)) == 2


def test_a_removed_version_may_come_back_with_the_same_bytes_only(database: Database) -> None:
    deployed(database, 1, sealed("digits", {1: "a", 2: "b"}))
    deployed(database, 2, sealed("digits", {1: "a"}))
    with pytest.raises(Conflict, match="existing version 2"):
        deployed(database, 3, sealed("digits", {1: "a", 2: "x"}))
    assert deployed(database, 4, sealed("digits", {1: "a", 2: "b"})).state == "deployed"


def test_the_check_before_a_push_names_the_changed_versions(database: Database) -> None:
    deployed(database, 1, sealed("digits", {1: "a", 2: "b"}))
    with database.reading() as session:
        new = {1: digest("x"), 2: digest("b"), 3: digest("c")}
        assert changed_versions(session, "digits", new) == [1]
        assert changed_versions(session, "words", new) == []


def test_a_model_belongs_to_the_repository_that_deployed_it_first(database: Database) -> None:
    repository(database, "speech")
    deployed(database, 1, sealed("digits", {1: "a"}))
    with pytest.raises(Conflict, match="'digits' belongs to the repository 'vision'"):
        deployed(database, 2, sealed("digits", {1: "a"}), name="speech")
    deployed(database, 3)
    with pytest.raises(Conflict, match="belongs to the repository 'vision'"):
        deployed(database, 4, sealed("digits", {1: "a"}), name="speech")
    with database.reading() as session:
        assert owner_of(session, "digits") == "vision"
        assert owner_of(session, "words") is None


def test_a_model_that_the_commit_no_longer_has_is_undeployed(database: Database) -> None:
    repository(database, "speech")
    deployed(database, 1, sealed("words", {1: "w"}), name="speech")
    deployed(database, 2, sealed("digits", {1: "a"}))
    view = deployed(database, 3)
    assert view.models == {"digits": None}
    rows_of = {row.name: (row.snapshot_digest, row.commit) for row in rows(database, Model)}
    assert rows_of["digits"] == (None, commit(3))
    assert rows_of["words"][0] is not None
    assert ("model.undeployed", "model:digits") in told(database)


def test_a_model_with_an_alias_is_not_undeployed(database: Database) -> None:
    deployed(database, 1, sealed("digits", {1: "a"}))
    with database.change(ADA) as tx:
        aliases.set_alias(tx, "digits", "best", 1)
        aliases.set_alias(tx, "digits", "champion", 1)
    with pytest.raises(Conflict, match="'digits' by best, champion; delete these first"):
        deployed(database, 2)


@pytest.mark.parametrize("name", ["", "a/b", "a@b", "a:b", "a\\b", "a\nb", " a", "x" * 129])
def test_a_name_that_no_model_can_have_is_refused(database: Database, name: str) -> None:
    with pytest.raises(Invalid, match="cannot name a model"):
        deployed(database, 1, sealed(name, {1: "a"}))


def _imported(database: Database, model: SealedModel) -> None:
    with database.change(ADA) as tx:
        tx.alone()
        origin = Origin(None, None, "https://models.example.org/digits.zip", "user:ada")
        deploy_models(tx, origin, {model.model: model})


def test_an_import_deploys_one_model_and_removes_no_other(database: Database) -> None:
    deployed(database, 1, sealed("digits", {1: "a"}))
    _imported(database, sealed("words", {1: "w"}))
    assert all(row.snapshot_digest for row in rows(database, Model))
    with pytest.raises(Conflict, match="'digits' belongs to the repository 'vision'"):
        _imported(database, sealed("digits", {2: "b"}))
    with pytest.raises(Conflict, match="'words' was imported from a URL"):
        deployed(database, 2, sealed("digits", {1: "a"}), sealed("words", {1: "w"}))


@pytest.mark.slow
def test_a_thousand_models_are_deployed_in_one_go(database: Database) -> None:
    deployed(database, 1, *(sealed(f"m{number}", {1: "a"}) for number in range(1000)))
    assert len(rows(database, Model)) == 1000
    assert desired_revision(database) == 1


def test_a_snapshot_of_a_config_alone_is_forgotten_a_while_after_it_was_replaced(
    database: Database,
) -> None:
    for number, config in enumerate(("one", "two", "three"), 1):
        deployed(database, number, sealed("a", {1: "bytes"}, config))
    with database.change(ADA) as tx:
        forget_snapshots(tx)
    assert len(rows(database, SnapshotRow)) == 3, "a gateway may still be told of each"
    with database.change(ADA) as tx:
        tx.now += KEPT
        forget_snapshots(tx)
    version, model = rows(database, Version)[0], rows(database, Model)[0]
    kept = {row.digest for row in rows(database, SnapshotRow)}
    assert kept == {version.snapshot_digest, model.snapshot_digest}
