"""Events become messages once, wait, are merged, bounded, sent and given up."""

from datetime import timedelta

import pytest

from control.notifications import outbox
from control.notifications.deliveries import list_deliveries
from control.notifications.policy import DeliveryState, WebhookAnswer
from control.notifications.webhooks import (
    WebhookTerms,
    change_webhook,
    delete_webhook,
)
from control.sql.database import Database
from support.control import ADA, told
from support.notifications import (
    AWAY,
    FINE,
    START,
    at,
    claimed,
    deliveries,
    failed,
    hook,
    settled,
    webhook,
)


def states(database: Database) -> list[tuple[str, int]]:
    return [(row.state, row.count) for row in deliveries(database)]


def test_an_event_gives_one_message_to_each_webhook_that_wants_it(database: Database) -> None:
    webhook(database, "all")
    webhook(database, "mine", models=["dig*"], kinds=["model.failed"])
    webhook(database, "others", models=["cats"])
    webhook(database, "rollouts", kinds=["rollout.rolled_back"])
    webhook(database, "off")
    with database.change(ADA) as tx:
        change_webhook(tx, "off", WebhookTerms(enabled=False))
    failed(database)
    assert sorted(row.webhook for row in deliveries(database)) == ["all", "mine"]
    (first, _) = deliveries(database)
    assert (first.kind, first.version, first.reason) == ("model.failed", 1, "it is broken")
    assert first.title == "digits version 1 failed on server s1"


def test_an_event_is_looked_at_once_however_often_the_outbox_advances(database: Database) -> None:
    webhook(database)
    failed(database)
    with at(database, 1) as tx:
        assert outbox.advance(tx) == 0
    assert states(database) == [("waiting", 1)]


def test_what_happened_before_a_webhook_was_made_is_not_sent_to_it(database: Database) -> None:
    with at(database) as tx:
        tx.happened("load.changed", "model:old", server="s", version=1, state="FAILED", reason="x")
    webhook(database)
    failed(database, "between")
    webhook(database, "later")
    failed(database, "digits")
    found = [(row.webhook, row.models) for row in deliveries(database)]
    assert sorted(found) == [
        ("later", ["digits"]),
        ("on-call", ["between"]),
        ("on-call", ["digits"]),
    ]


def test_nothing_is_made_of_a_transaction_that_is_rolled_back(database: Database) -> None:
    webhook(database)

    def break_off() -> None:
        with at(database) as tx:
            facts = {"server": "s", "version": 1, "state": "FAILED", "reason": "x"}
            tx.happened("load.changed", "model:m", **facts)
            outbox.advance(tx)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    with at(database) as tx:
        outbox.advance(tx)
    assert deliveries(database) == []


def test_the_same_again_before_it_is_sent_is_counted_on_the_message(database: Database) -> None:
    webhook(database)
    failed(database)
    failed(database, seconds=2, server="s2")
    failed(database, seconds=3, reason="another reason")
    first, second = deliveries(database)
    assert (first.count, second.count) == (2, 1)
    assert (first.first_at, first.last_at) == (START, START + timedelta(seconds=2))


def test_the_same_again_after_it_was_sent_waits_for_the_window_and_is_one_message(
    database: Database,
) -> None:
    webhook(database, window_s=600)
    failed(database)
    (one,) = claimed(database)
    settled(database, one, FINE)
    for seconds in (60, 120, 180):
        failed(database, seconds=seconds, server=f"s{seconds}")
    assert states(database) == [("delivered", 1), ("waiting", 3)]
    assert claimed(database, 599) == []
    assert len(claimed(database, 601)) == 1


def test_a_message_that_is_being_sent_takes_no_more_events(database: Database) -> None:
    webhook(database)
    failed(database)
    claimed(database)
    failed(database, seconds=1)
    assert states(database) == [("waiting", 1), ("waiting", 1)]


def test_a_webhook_without_a_window_gets_a_message_each_time(database: Database) -> None:
    webhook(database, window_s=0)
    for seconds in range(3):
        failed(database, seconds=seconds, server=f"s{seconds}")
    assert states(database) == [("waiting", 1)] * 3


def test_the_third_failure_within_ten_minutes_is_told_as_a_crash_loop(database: Database) -> None:
    webhook(database)
    for seconds in (0, 200, 400):
        failed(database, seconds=seconds)
    kinds = [(row.kind, row.count) for row in deliveries(database)]
    assert kinds == [("model.failed", 2), ("model.crash_looping", 1)]


def test_failures_that_lie_far_apart_are_no_crash_loop(database: Database) -> None:
    webhook(database)
    for seconds in (0, 500, 1000):
        failed(database, seconds=seconds)
    assert [row.kind for row in deliveries(database)] == ["model.failed"]


def test_a_receiver_that_is_away_gets_all_its_messages_later(database: Database) -> None:
    webhook(database)
    failed(database, "a")
    failed(database, "b", seconds=1)
    (first,) = claimed(database, 2)
    settled(database, first, AWAY, 2)
    assert claimed(database, 3) == []
    (again,) = claimed(database, 60)
    settled(database, again, FINE, 60)
    (second,) = claimed(database, 60)
    settled(database, second, FINE, 60)
    assert [(row.models, row.state, row.attempts) for row in deliveries(database)] == [
        (["a"], "delivered", 2),
        (["b"], "delivered", 1),
    ]
    assert hook(database).failures == 0
    assert hook(database).delivered_at == START + timedelta(seconds=60)


def test_a_message_that_is_refused_lets_the_others_pass(database: Database) -> None:
    webhook(database)
    failed(database, "poison")
    (first,) = claimed(database)
    settled(database, first, WebhookAnswer(400, "what is this"))
    failed(database, "fine", seconds=1)
    (second,) = claimed(database, 6.5)
    settled(database, second, FINE, 6.5)
    assert second[0] != first[0] or second[1] == 2
    rows = {row.models[0]: row for row in deliveries(database)}
    assert rows["poison"].last_error == "the receiver answers 400: what is this"


def test_a_message_is_given_up_after_a_day_and_says_so(database: Database) -> None:
    webhook(database)
    failed(database)
    day_s = 86_400
    (one,) = claimed(database, day_s)
    settled(database, one, AWAY, day_s)
    (row,) = deliveries(database)
    assert (row.state, row.last_error) == (DeliveryState.FAILED, "refused")
    assert ("delivery.failed", f"delivery:{row.id}") in told(database)


def test_the_first_failure_in_a_row_is_an_event(database: Database) -> None:
    webhook(database)
    failed(database)
    for seconds in (0, 60):
        (one,) = claimed(database, seconds)
        settled(database, one, AWAY, seconds)
    with database.reading() as session:
        (view,) = list_deliveries(session).items
    assert view.next_at == hook(database).hold_until
    assert told(database).count(("webhook.failing", "webhook:on-call")) == 1
    assert (hook(database).failures, hook(database).last_error) == (2, "refused")


def test_an_outcome_that_somebody_else_has_overtaken_changes_nothing(database: Database) -> None:
    webhook(database)
    failed(database)
    (first,) = claimed(database)
    (second,) = claimed(database, 1)  # a new holder of the lease sends it again
    assert second == (first[0], 2)
    settled(database, first, AWAY, 2)
    assert hook(database).failures == 0
    settled(database, second, FINE, 3)
    assert states(database) == [("delivered", 1)]
    settled(database, second, AWAY, 4)
    assert states(database) == [("delivered", 1)]


def test_a_webhook_that_is_being_sent_to_waits_and_the_others_do_not(database: Database) -> None:
    webhook(database, "a")
    webhook(database, "b")
    failed(database)
    assert len(claimed(database, busy=["a"])) == 1
    with at(database) as tx:
        assert [row.webhook for row in outbox.claim(tx, ["b"], 10)] == ["a"]


def test_no_more_than_asked_for_are_claimed(database: Database) -> None:
    for name in "abc":
        webhook(database, name)
    failed(database)
    assert len(claimed(database, most=2)) == 2


def test_the_oldest_message_gives_way_and_is_counted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_WAITING", 3)
    webhook(database)
    for number in range(5):
        failed(database, f"m{number}", seconds=number)
    assert [row.models for row in deliveries(database)] == [["m2"], ["m3"], ["m4"]]
    assert hook(database).dropped == 2


def test_a_problem_that_is_acknowledged_is_not_told_again(database: Database) -> None:
    webhook(database)
    with at(database) as tx:
        for model in ("digits", "cats"):
            facts = {"server": "s", "version": 1, "state": "FAILED", "reason": "x"}
            tx.happened("load.changed", f"model:{model}", **facts)
    with at(database) as tx:
        outbox.advance(tx, {"digits version 1"})
    assert [row.models for row in deliveries(database)] == [["cats"]]
    with at(database, 1) as tx:
        assert outbox.claim(tx, (), 10, {"cats version 2", "dogs"}) != []
    with at(database, 1) as tx:
        assert outbox.claim(tx, (), 10, {"cats"}) == []
    assert states(database) == [("muted", 1)]


def test_a_webhook_that_is_enabled_again_gets_nothing_of_meanwhile(database: Database) -> None:
    webhook(database)
    with database.change(ADA) as tx:
        change_webhook(tx, "on-call", WebhookTerms(enabled=False))
    webhook(database, "other")
    failed(database, "meanwhile")
    with database.change(ADA) as tx:
        change_webhook(tx, "on-call", WebhookTerms(enabled=True))
    failed(database, "later")
    mine = [row.models for row in deliveries(database) if row.webhook == "on-call"]
    assert mine == [["later"]]


def test_what_waits_for_a_disabled_webhook_is_not_sent(database: Database) -> None:
    webhook(database)
    failed(database)
    with database.change(ADA) as tx:
        change_webhook(tx, "on-call", WebhookTerms(enabled=False))
    assert claimed(database, 1) == []
    with database.reading() as session:
        assert not outbox.status_of(session).watched


def test_a_deleted_webhook_takes_its_messages_along(database: Database) -> None:
    webhook(database)
    failed(database)
    (one,) = claimed(database)
    with database.change(ADA) as tx:
        delete_webhook(tx, "on-call")
    settled(database, one, FINE)
    assert deliveries(database) == []


def test_the_status_tells_what_there_is_to_do(database: Database) -> None:
    with database.reading() as session:
        assert outbox.status_of(session) == outbox.OutboxStatus()
    webhook(database)
    with at(database) as tx:
        tx.happened("alias.moved", "alias:m@best")
    with database.reading() as session:
        assert not outbox.status_of(session).behind
    with at(database) as tx:
        tx.happened("load.changed", "model:m", server="s", version=1, state="FAILED", reason="x")
    with database.reading() as session:
        found = outbox.status_of(session)
        assert found.behind
        assert not outbox.status_of(session, found.newest).behind
    failed(database, seconds=1)
    with database.reading() as session:
        found = outbox.status_of(session)
    assert not found.behind
    assert found.due == {"on-call": START + timedelta(seconds=1)}


def test_the_cursor_moves_past_many_events_that_nobody_is_told_of(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LONGEST_LAG", 5)
    webhook(database)
    with at(database) as tx:
        for _ in range(7):
            tx.happened("alias.moved", "alias:m@best")
    with database.reading() as session:
        assert outbox.status_of(session).behind
    with at(database) as tx:
        outbox.advance(tx)
    with database.reading() as session:
        assert not outbox.status_of(session).behind


def test_many_events_are_taken_in_steps_and_none_is_missed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "EVENTS_AT_ONCE", 2)
    webhook(database)
    with at(database) as tx:
        for number in range(5):
            facts = {"server": "s", "version": 1, "state": "FAILED", "reason": "x"}
            tx.happened("load.changed", f"model:m{number}", **facts)
    with at(database) as tx:
        while outbox.advance(tx):
            pass
    assert [row.models for row in deliveries(database)] == [[f"m{number}"] for number in range(5)]


def test_an_event_that_cannot_be_read_stops_no_other(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    webhook(database)
    with at(database) as tx:
        tx.happened("rollout.abort", "rollout:r", after={"candidate": "two"})
    failed(database)
    assert [row.kind for row in deliveries(database)] == ["model.failed"]
    assert "gives no notification" in caplog.text
