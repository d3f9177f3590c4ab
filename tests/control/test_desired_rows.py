"""What gateways are told, made from rows."""

from control import loads
from control.access import tokens, users
from control.access.scopes import Role
from control.clock import utc_now
from control.deployments import aliases
from control.desired import DesiredModel, DesiredState, Pin
from control.desired_rows import desired
from control.gateways.wire import decode_state, encode_state
from control.sql import store
from control.sql.database import Database
from support.control import ADA, desired_revision
from support.control_deploy import commit, deployed, repository, sealed


def _desired(database: Database) -> DesiredState:
    with database.reading() as session:
        return desired(session, utc_now())


def _alias(database: Database, model: str, name: str, version: int) -> None:
    with database.change(ADA) as tx:
        aliases.set_alias(tx, model, name, version)


def test_nothing_is_wanted_of_an_empty_database(database: Database) -> None:
    assert _desired(database) == DesiredState()


def test_deployed_models_are_wanted_with_where_they_came_from(database: Database) -> None:
    repository(database)
    digits = sealed("digits", {1: "a"})
    deployed(database, 1, digits, sealed("words", {1: "w"}))
    deployed(database, 2, digits)
    with database.change(ADA) as tx:
        store_id = store.store_id(tx)
    told = _desired(database)
    assert told.models == (DesiredModel("digits", digits.digest, "vision", commit(1)),)
    assert (told.revision, told.store) == (desired_revision(database), store_id)


def test_an_alias_pins_its_version_in_the_deployed_snapshot(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a"}))
    config = sealed("digits", {1: "a"}, "another config")
    deployed(database, 2, config)
    _alias(database, "digits", "champion", 1)
    told = _desired(database)
    assert told.models[0].pins == (Pin(1, config.digest, "alias champion"),)
    assert told.aliases == {"digits": {"champion": 1}}


def test_a_version_that_the_commit_dropped_is_pinned_in_the_snapshot_that_has_it(
    database: Database,
) -> None:
    repository(database)
    old = sealed("digits", {1: "a"})
    deployed(database, 1, old)
    _alias(database, "digits", "champion", 1)
    deployed(database, 2, sealed("digits", {2: "b"}))
    assert _desired(database).models[0].pins == (Pin(1, old.digest, "alias champion"),)


def test_a_model_in_a_folder_is_only_referred_to(database: Database) -> None:
    with database.change(ADA) as tx:
        loads.record(tx, "one", [("words", 4, "READY", "")])
    _alias(database, "words", "best", 4)
    told = _desired(database)
    assert told.models == (DesiredModel("words", pins=(Pin(4, "", "alias best"),)),)


def test_tokens_are_granted(database: Database) -> None:
    with database.change(ADA) as tx:
        users.create_user(tx, "ada", Role.OPERATOR)
        new = tokens.create_token(tx, "ada", "ci", ["infer:digits"])
    (grant,) = _desired(database).grants
    assert grant.digest == tokens.digest_of(new.text)
    assert grant.scopes == ("infer:digits",)


def test_what_is_told_survives_the_wire(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a"}))
    _alias(database, "digits", "champion", 1)
    told = _desired(database)
    assert decode_state(encode_state(told)) == told
