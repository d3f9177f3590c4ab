"""The pages of notifications: webhooks made, tested, changed; messages; mutes; who may what."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from admin_ui.pages import notifications
from control.notifications.policy import WebhookAnswer
from control.notifications.sender import WebhookSender
from control.sql.database import Database
from support.admin import Api, facts
from support.console import Person, console_over, person
from support.notifications import claimed, failed, settled
from support.webhook_receiver import Receiver, Reply, receiver


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture
def running(sqlite: Database, tmp_path: Path, there: Receiver) -> Iterator[Api]:
    known = replace(facts(tmp_path), notification_allow=(there.prefix,))
    sender = WebhookSender((there.prefix,))
    with console_over(sqlite, tmp_path, facts=known, webhooks=sender) as one:
        yield one


@pytest.fixture
def ada(running: Api) -> Person:
    return person(running, "admin", "ada")


FORM = {"name": "on-call", "format": "json", "models": "", "window_s": "600"}


def made(ada: Person, there: Receiver, **fields: str) -> str:
    """A webhook by the form; its secret as the page shows it."""
    found = ada.post("/notifications", {**FORM, "url": there.url, **fields})
    assert found.status == 200, found.text[-800:]
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", unescape(found.text))
    assert secret
    return secret[0]


def test_without_a_webhook_the_page_says_how_to_make_one(ada: Person) -> None:
    assert "modelyard webhook create on-call" in ada.get("/notifications").text


def test_a_webhook_is_made_and_its_secret_shown_once(ada: Person, there: Receiver) -> None:
    secret = made(ada, there, models="digits fraud-*")
    for path in ("/notifications", "/notifications/on-call"):
        text = unescape(ada.get(path).text)
        assert "fraud-*" in text
        assert secret not in text
        assert "/hook" not in text


def test_a_form_that_is_refused_says_so_beside_its_field(ada: Person, there: Receiver) -> None:
    bad = {**FORM, "url": "https://127.0.0.1:1/x"}
    found = ada.post("/notifications", bad)
    assert found.status == 422
    assert 'id="f-notifications-url-wrong"' in found.text
    assert "--notification-allow" in found.text


def test_the_test_button_shows_what_the_receiver_answers(ada: Person, there: Receiver) -> None:
    made(ada, there)
    there.answers.append(Reply(202, b"<b>queued</b>"))
    act = "/notifications/on-call/test"
    found = ada.post(act, {})
    assert "<h1>The test message arrived</h1>" in found.text
    assert "answered 202" in found.text
    assert "&lt;b&gt;queued&lt;/b&gt;" in found.text
    there.answers.append(Reply(403, b"who are you"))
    found = ada.post(act, {})
    assert "<h1>The test message did not arrive</h1>" in found.text
    assert "the receiver answers 403: who are you" in found.text
    assert len(there.messages) == 2


def test_a_failing_webhook_says_why_and_when_it_is_tried_again(
    ada: Person, running: Api, there: Receiver
) -> None:
    made(ada, there)
    failed(running.database)
    (one,) = claimed(running.database)
    settled(running.database, one, WebhookAnswer(0, error="the connection failed: refused"))
    text = unescape(ada.get("/notifications/on-call").text)
    assert "1 try in a row failed: the connection failed: refused" in text
    assert "digits version 1 failed on server s1" in text
    assert "failing" in unescape(ada.get("/notifications").text)


def test_a_webhook_is_changed_disabled_rotated_and_deleted(ada: Person, there: Receiver) -> None:
    secret = made(ada, there)
    one = "/notifications/on-call"
    changed = {"revision": "1", "format": "slack", "kinds": "model.failed", "window_s": "0"}
    assert ada.post(one + "/change", changed).status == 303
    assert "a message each time" in ada.get(one).text
    assert ada.post(one + "/switch", {"enabled": "no", "revision": ""}).status == 303
    assert "disabled" in ada.get(one).text
    rotated = ada.post(one + "/rotate", {})
    assert secret not in unescape(rotated.text)
    assert "whsec_" in rotated.text
    assert ada.post(one + "/delete", {"confirm": "no"}).status == 422
    assert ada.post(one + "/delete", {"confirm": "on-call"}).status == 303
    assert ada.get(one).status == 404


def test_a_change_of_somebody_else_meanwhile_is_not_overwritten(
    ada: Person, there: Receiver
) -> None:
    made(ada, there)
    one = "/notifications/on-call"
    fields = {"revision": "7", "format": "json", "window_s": "600"}
    found = ada.post(one + "/change", fields)
    assert found.status == 412
    assert "changed meanwhile" in unescape(found.text)


def test_a_mute_is_made_shown_and_ended(ada: Person, running: Api) -> None:
    fields = {"model": "digits", "for_s": "3600", "note": "known <i>"}
    assert ada.post("/notifications/mutes", fields).status == 303
    page = ada.get("/notifications").text
    assert "known &lt;i&gt;" in page
    mute = running.local("GET", "/mutes").json["items"][0]["id"]
    assert ada.post(f"/notifications/mutes/{mute}/end", {}).status == 303
    assert running.local("GET", "/mutes").json["items"] == []


def test_a_message_is_sent_again_by_hand(ada: Person, running: Api, there: Receiver) -> None:
    made(ada, there)
    failed(running.database)
    (one,) = claimed(running.database)
    settled(running.database, one, WebhookAnswer(200))
    act = f"/notifications/deliveries/{one[0]}/retry"
    assert ada.post(act, {}).status == 303
    shown = running.local("GET", f"/deliveries/{one[0]}").json
    assert shown["state"] == "waiting"


def test_who_may_less_is_offered_less(ada: Person, running: Api, there: Receiver) -> None:
    made(ada, there)
    otto, vera = person(running, "operator", "otto"), person(running, "viewer", "vera")
    assert "make-webhook" not in otto.get("/notifications").text
    assert "make-mute" in otto.get("/notifications").text
    assert "make-mute" not in vera.get("/notifications").text
    assert "data-dialog" not in otto.get("/notifications/on-call").text
    assert "Send a test message" in otto.get("/notifications/on-call").text
    assert "takes the role operator" in vera.get("/notifications/on-call").text


def test_every_form_here_has_a_screen() -> None:
    paths = {screen.path for screen in notifications.SCREENS}
    assert all(act.screen in paths for act in notifications.ACTS)
