"""What is muted gives no messages, for as long as it is; nothing else is."""

from control.notifications import mutes
from control.sql.database import Database
from support.notifications import at, claimed, deliveries, failed, webhook


def test_a_mute_keeps_messages_from_being_made_until_it_ends(database: Database) -> None:
    webhook(database)
    with at(database) as tx:
        mutes.create_mute(tx, "dig*", (), 100, "the disk is being replaced")
    failed(database, seconds=50)
    failed(database, "cats", seconds=50)
    failed(database, seconds=101, reason="again")
    assert [row.models for row in deliveries(database)] == [["cats"], ["digits"]]


def test_a_mute_ends_messages_that_wait(database: Database) -> None:
    webhook(database)
    failed(database)
    with at(database, 1) as tx:
        mutes.create_mute(tx, "digits", ["model.failed"])
    assert claimed(database, 2) == []
    assert [row.state for row in deliveries(database)] == ["muted"]


def test_a_mute_of_another_kind_or_model_mutes_nothing(database: Database) -> None:
    webhook(database)
    with at(database) as tx:
        mutes.create_mute(tx, "digits", ["rollout.paused"])
        mutes.create_mute(tx, "cats")
    failed(database)
    assert len(claimed(database)) == 1
