"""Webhooks and mutes as rows: what is refused, what is never shown, what is audited."""

from datetime import timedelta

import pytest

from control.errors import Conflict, Invalid, NotFound, Stale
from control.notifications import mutes, webhooks
from control.notifications.messages import message_for_test, message_of, settle_test
from control.notifications.outbox import claim
from control.notifications.tables import NotificationMute
from control.notifications.webhooks import (
    ROTATION,
    WebhookTerms,
    change_webhook,
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhooks,
    rotate_secret,
)
from control.sql.database import Database
from support.control import ADA, all_text, rows, told
from support.notifications import (
    AWAY,
    FINE,
    START,
    URL,
    at,
    claimed,
    failed,
    hook,
    settled,
    webhook,
)


def test_a_webhook_is_made_with_a_secret_that_nothing_else_shows(database: Database) -> None:
    secret = webhook(database, kinds=["rollout.rolled_back"], models=["digits"])
    assert secret.startswith("whsec_")
    with database.reading() as session:
        view = get_webhook(session, "on-call")
        listed = list_webhooks(session).items
    assert listed == (view,)
    assert (view.url, view.format, view.window_s) == ("https://hooks.example.com/…", "json", 600)
    for text in (repr(view), all_text(database)):
        assert "secret-path" not in text
        assert secret not in text


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"url": "http://hooks.example.com/x"}, "url"),
        ({"url": "https://10.0.0.1/x"}, "url"),
        ({"format": "xml"}, "format"),
        ({"kinds": ["model.sad"]}, "kinds"),
        ({"models": ["two words"]}, "models"),
        ({"models": ["x?"]}, "models"),
        ({"window_s": 10**7}, "window_s"),
    ],
)
def test_terms_that_cannot_be_are_refused_by_field(
    sqlite: Database, terms: dict[str, object], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        webhook(sqlite, **terms)  # type: ignore[arg-type]
    assert refused.value.field == field
    assert rows(sqlite, webhooks.Webhook) == []


@pytest.mark.parametrize("name", ["", "Has Capitals", "-x", "x" * 64, "a/b", "ü"])
def test_a_name_that_cannot_be_is_refused(sqlite: Database, name: str) -> None:
    with pytest.raises(Invalid):
        webhook(sqlite, name)


def test_a_name_is_taken_once_and_there_is_a_bound(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST_WEBHOOKS", 2)
    webhook(sqlite)
    with pytest.raises(Conflict, match="already"):
        webhook(sqlite)
    webhook(sqlite, "second")
    with pytest.raises(Conflict, match="delete one"):
        webhook(sqlite, "third")


def test_a_change_keeps_what_it_does_not_name_and_hides_the_new_url(database: Database) -> None:
    webhook(database, models=["digits"])
    with database.change(ADA) as tx:
        view = change_webhook(tx, "on-call", WebhookTerms(url="https://other.example.com/hidden"))
    assert (view.url, view.models, view.revision) == ("https://other.example.com/…", ("digits",), 2)
    assert "hidden" not in all_text(database)
    with pytest.raises(Stale), database.change(ADA) as tx:
        change_webhook(tx, "on-call", WebhookTerms(enabled=False), expected=1)
    assert told(database)[-1] == ("webhook.changed", "webhook:on-call")


def test_a_new_url_is_tried_at_once(sqlite: Database) -> None:
    webhook(sqlite)
    failed(sqlite)
    (one,) = claimed(sqlite)
    settled(sqlite, one, AWAY)
    assert hook(sqlite).hold_until is not None
    with sqlite.change(ADA) as tx:
        change_webhook(tx, "on-call", WebhookTerms(url=URL + "/2"))
    assert (hook(sqlite).failures, hook(sqlite).hold_until) == (0, None)


def signatures(database: Database, seconds: float) -> int:
    failed(database, f"m{seconds:g}", seconds=seconds)
    with at(database, seconds) as tx:
        (row,) = claim(tx, (), 1)
        message = message_of(tx, row, "https://models.example.com")
    settled(database, (message.delivery, message.attempts), FINE, seconds)
    return len(message.headers["webhook-signature"].split())


def test_after_a_rotation_both_secrets_sign_for_a_day(database: Database) -> None:
    old = webhook(database)
    assert signatures(database, 0) == 1
    with at(database, 1) as tx:
        made = rotate_secret(tx, "on-call")
    assert made.text != old
    assert made.view.old_secret_until == START + timedelta(seconds=1) + ROTATION
    assert signatures(database, 2) == 2
    assert signatures(database, 2 + ROTATION.total_seconds()) == 1
    assert made.text not in all_text(database)


def test_a_secret_that_leaked_ends_at_once(sqlite: Database) -> None:
    old = webhook(sqlite)
    with at(sqlite, 1) as tx:
        rotate_secret(tx, "on-call", at_once=True)
    assert signatures(sqlite, 2) == 1
    assert old not in (hook(sqlite).secret, hook(sqlite).old_secret)


def test_a_webhook_that_is_not_there_is_told_so(sqlite: Database) -> None:
    for change in (delete_webhook, rotate_secret):
        with pytest.raises(NotFound), sqlite.change(ADA) as tx:
            change(tx, "nobody")


def test_a_test_message_says_that_it_is_one_and_is_audited(sqlite: Database) -> None:
    webhook(sqlite, format="slack")
    with sqlite.change(ADA) as tx:
        message = message_for_test(tx, "on-call", "https://models.example.com")
    assert b"Test message" in message.body
    assert message.url == URL
    assert "secret-path" not in repr(message)
    assert told(sqlite)[-1] == ("webhook.tested", "webhook:on-call")


def test_a_test_that_arrives_lets_waiting_messages_go(sqlite: Database) -> None:
    webhook(sqlite)
    failed(sqlite)
    (one,) = claimed(sqlite)
    settled(sqlite, one, AWAY)
    with at(sqlite, 1) as tx:
        message = message_for_test(tx, "on-call", "")
        settle_test(tx, message, AWAY)
    assert hook(sqlite).failures == 1
    with at(sqlite, 1) as tx:
        settle_test(tx, message, FINE)
    assert len(claimed(sqlite, 1)) == 1


def test_mutes_are_listed_ended_and_forgotten(database: Database) -> None:
    with at(database) as tx:
        short = mutes.create_mute(tx, "digits", (), 60, "known")
        mutes.create_mute(tx, "*", ["rollout.paused"])
    with database.reading() as session:
        assert {view.model for view in mutes.list_mutes(session).items} == {"digits", "*"}
    with at(database, 61) as tx:
        assert [row.model for row in mutes.mutes_in_force(tx)] == ["*"]
    with at(database, mutes.KEPT.total_seconds() + 61) as tx:
        mutes.forget_mutes(tx)
    (left,) = rows(database, NotificationMute)
    with database.change(ADA) as tx:
        mutes.delete_mute(tx, left.id)
    with pytest.raises(NotFound), database.change(ADA) as tx:
        mutes.delete_mute(tx, short.id)


@pytest.mark.parametrize(
    ("model", "kinds", "for_s", "field"),
    [("a b", (), None, "model"), ("m", ("x",), None, "kinds"), ("m", (), 0, "for_s")],
)
def test_a_mute_that_cannot_be_is_refused(
    sqlite: Database, model: str, kinds: tuple[str, ...], for_s: int | None, field: str
) -> None:
    with pytest.raises(Invalid) as refused, sqlite.change(ADA) as tx:
        mutes.create_mute(tx, model, kinds, for_s)
    assert refused.value.field == field


def test_a_webhook_may_be_private_where_the_settings_allow_it(sqlite: Database) -> None:
    with sqlite.change(ADA) as tx:
        wanted = WebhookTerms(url="http://10.0.0.1:9000/x")
        create_webhook(tx, "inside", wanted, ["http://10.0.0.1:9000/"])
    with pytest.raises(Invalid), sqlite.change(ADA) as tx:
        create_webhook(tx, "outside", WebhookTerms(url=URL), ["http://10.0.0.1:9000/"])
