"""Messages that are kept: sent once more by hand, forgotten in time, listed."""

import pytest

from control.notifications.deliveries import (
    KEPT,
    MOST_ENDED,
    forget_deliveries,
    list_deliveries,
    retry_delivery,
)
from control.notifications.policy import DeliveryState
from control.sql.database import Database
from support.notifications import FINE, at, claimed, deliveries, failed, settled, webhook


def test_a_message_is_sent_once_more_by_hand_with_its_id(database: Database) -> None:
    webhook(database)
    failed(database)
    (one,) = claimed(database)
    settled(database, one, FINE)
    with at(database, 10) as tx:
        assert retry_delivery(tx, one[0]).state is DeliveryState.WAITING
    assert claimed(database, 10) == [(one[0], 2)]


def test_ended_messages_are_forgotten_by_age_and_number(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.notifications.deliveries.MOST_ENDED", 2)
    webhook(database, window_s=0)
    for number in range(4):
        failed(database, f"m{number}", seconds=number)
        (one,) = claimed(database, number)
        settled(database, one, FINE, number)
    with at(database, 10) as tx:
        forget_deliveries(tx)
    assert [row.models for row in deliveries(database)] == [["m2"], ["m3"]]
    with at(database, KEPT.total_seconds() + 3) as tx:
        forget_deliveries(tx)
    assert deliveries(database) == []
    assert MOST_ENDED == 200


def test_deliveries_are_listed_newest_first_by_webhook_and_state(database: Database) -> None:
    webhook(database)
    for number in range(3):
        failed(database, f"m{number}", seconds=number)
    (one,) = claimed(database, 5)
    settled(database, one, FINE, 5)
    with database.reading() as session:
        waiting = list_deliveries(session, webhook="on-call", state="waiting").items
        assert [view.models for view in waiting] == [("m2",), ("m1",)]
        assert list_deliveries(session, webhook="other").items == ()
