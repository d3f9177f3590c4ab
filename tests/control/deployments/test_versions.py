"""What models and versions there are."""

import json

import pytest

from control import loads
from control.deployments import aliases, versions
from control.errors import NotFound
from control.sql.database import Database
from control.views import to_json
from support.control import ADA
from support.control_deploy import commit, deployed, digest, repository, sealed


@pytest.fixture(autouse=True)
def digits(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a", 2: "b"}), sealed("words", {1: "w"}))
    deployed(database, 2, sealed("digits", {2: "b", 3: "c"}), sealed("words", {1: "w"}))
    with database.change(ADA) as tx:
        aliases.set_alias(tx, "digits", "champion", 1)
        told = [("digits", 0, "READY", ""), ("digits", 3, "FAILED", "no memory")]
        loads.record(tx, "one", told)


def test_a_model_is_shown_with_its_versions_states_and_aliases(database: Database) -> None:
    with database.reading() as session:
        model = versions.get_model(session, "digits")
    assert (model.repository, model.commit) == ("vision", commit(2))
    assert [(one.version, one.deployed) for one in model.versions] == [
        (3, True),
        (2, True),
        (1, False),
    ]
    shown = json.loads(to_json(model))
    assert shown["aliases"] == {"champion": 1}
    assert shown["versions"][0]["states"][0]["reason"] == "no memory"
    assert shown["versions"][2]["aliases"] == ["champion"]
    assert shown["states"][0]["state"] == "READY"


def test_a_version_is_shown_with_its_provenance(database: Database) -> None:
    with database.reading() as session:
        shown = json.loads(to_json(versions.get_version(session, "digits", 1)))
    assert shown["digest"] == digest("a")
    assert shown["provenance"]["source"] == commit(1)
    assert shown["provenance"]["pusher"] == ADA.principal
    assert shown["provenance"]["signer"] == "ci@example.org"
    assert shown["checks"] == {"config": "ok"}
    assert (shown["aliases"], shown["deployed"]) == (["champion"], False)


def test_models_and_versions_come_in_pages(database: Database) -> None:
    with database.reading() as session:
        first = versions.list_models(session, repository="vision", limit=1)
        second = versions.list_models(session, cursor=first.next)
        assert [model.name for page in (first, second) for model in page.items] == [
            "digits",
            "words",
        ]
        newest = versions.list_versions(session, "digits", limit=2)
        rest = versions.list_versions(session, "digits", cursor=newest.next)
        assert [one.version for page in (newest, rest) for one in page.items] == [3, 2, 1]


def test_what_is_not_there_is_refused_naming_what_is(database: Database) -> None:
    with database.reading() as session:
        with pytest.raises(NotFound, match="'digits' has no version 9; it has 1, 2, 3"):
            versions.get_version(session, "digits", 9)
        with pytest.raises(NotFound, match="has no version"):
            versions.get_version(session, "digits", 2**70)
        with pytest.raises(NotFound, match="no model 'x' was ever deployed"):
            versions.get_model(session, "x")
        with pytest.raises(NotFound, match="was ever deployed"):
            versions.list_versions(session, "\0")
        with pytest.raises(NotFound, match="no repository 'x'"):
            versions.list_models(session, repository="x")
