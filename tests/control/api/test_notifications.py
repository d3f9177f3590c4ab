"""Webhooks, test messages, deliveries and mutes over the control API."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from control.notifications.sender import WebhookSender
from control.sql.database import Database
from support.admin import Api, api, facts
from support.control import all_text
from support.notifications import URL, failed
from support.webhook_receiver import Receiver, Reply, receiver


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture
def running(sqlite: Database, tmp_path: Path, there: Receiver) -> Iterator[Api]:
    """A server that may send to `there` alone."""
    known = replace(facts(tmp_path), notification_allow=(there.prefix,))
    sender = WebhookSender((there.prefix,))
    with api(sqlite, tmp_path, facts=known, webhooks=sender) as found:
        yield found


def created(running: Api, there: Receiver, **terms: object) -> str:
    made = running.local("POST", "/webhooks", {"name": "on-call", "url": there.url, **terms})
    assert made.status == 201, made.text
    return str(made.json["secret"])


def test_a_webhook_is_created_shown_changed_rotated_and_deleted(
    running: Api, there: Receiver
) -> None:
    secret = created(running, there, models=["digits"])
    shown = running.local("GET", "/webhooks/on-call")
    assert shown.json["url"] == f"http://127.0.0.1:{there.port}/…"
    assert shown.json["models"] == ["digits"]
    assert secret not in shown.text
    etag = {"If-Match": shown.headers["etag"]}
    changed = running.local("PATCH", "/webhooks/on-call", {"enabled": False}, headers=etag)
    assert (changed.status, changed.json["enabled"]) == (200, False)
    assert changed.json["models"] == ["digits"]
    stale = running.local("PATCH", "/webhooks/on-call", {"enabled": True}, headers=etag)
    assert stale.status == 412
    rotated = running.local("POST", "/webhooks/on-call/rotate", {})
    assert rotated.json["secret"] not in (secret, "")
    assert running.local("GET", "/webhooks").json["items"] == [rotated.json["webhook"]]
    assert running.local("DELETE", "/webhooks/on-call").status == 204
    assert running.local("GET", "/webhooks/on-call").status == 404
    for text in (secret, rotated.json["secret"], there.url):
        assert text not in all_text(running.database)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x", "url": "https://elsewhere.example.com/"}, "url"),
        ({"name": "x", "url": "not a url"}, "url"),
        ({"name": "A B"}, "name"),
        ({"name": "x", "kinds": ["model.sad"]}, "kinds"),
        ({"name": "x", "format": "xml"}, "format"),
        ({"name": "x", "window_s": 10**9}, "window_s"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused_by_field(
    running: Api, there: Receiver, body: dict[str, object], field: str
) -> None:
    refused = running.local("POST", "/webhooks", {"url": there.url, **body})
    assert refused.status == 422
    assert refused.json["error"]["field"] == field


def test_a_private_address_is_refused_unless_the_settings_allow_it(
    sqlite: Database, tmp_path: Path, there: Receiver
) -> None:
    with api(sqlite, tmp_path) as running:
        for url in ("https://127.0.0.1/x", "https://169.254.169.254/latest", there.url):
            refused = running.local("POST", "/webhooks", {"name": "x", "url": url})
            assert refused.status == 422
            assert "--notification-allow" in refused.message
        by_name = {"name": "x", "url": f"https://localhost:{there.port}/hook"}
        assert running.local("POST", "/webhooks", by_name).status == 201
        answer = running.local("POST", "/webhooks/x/test").json
    assert (answer["delivered"], answer["status"]) == (False, 0)
    assert "leads to an address that is loopback" in answer["error"]
    assert there.messages == []


def test_a_test_message_is_sent_and_the_answer_shown(running: Api, there: Receiver) -> None:
    created(running, there)
    there.answers.append(Reply(202, b"queued"))
    answer = running.local("POST", "/webhooks/on-call/test").json
    (message,) = there.messages
    assert (answer["delivered"], answer["status"], answer["answer"]) == (True, 202, "queued")
    assert answer["id"] == message.id
    assert message.json["type"] == "test"
    assert message.json["data"]["actor"].startswith("local:")
    assert running.local("GET", "/webhooks/on-call").json["last_status"] == 202
    audit = running.local("GET", "/audit?action=webhook.tested").json["items"]
    assert [row["subject"] for row in audit] == ["webhook:on-call"]


def test_a_test_message_that_is_refused_says_why(running: Api, there: Receiver) -> None:
    created(running, there)
    there.answers.append(Reply(404, b"no such hook"))
    answer = running.local("POST", "/webhooks/on-call/test").json
    assert (answer["delivered"], answer["status"]) == (False, 404)
    assert answer["error"] == "the receiver answers 404: no such hook"


def test_test_messages_are_bounded(running: Api, there: Receiver) -> None:
    created(running, there)
    held = [object() for _ in range(4)]

    async def take() -> None:
        for one in held:
            running.services.webhook_tests.acquire_on_behalf_of_nowait(one)

    asyncio.run_coroutine_threadsafe(take(), running.loop).result(20)
    refused = running.local("POST", "/webhooks/on-call/test")
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert there.messages == []


def test_deliveries_are_listed_shown_and_sent_again(running: Api, there: Receiver) -> None:
    created(running, there)
    failed(running.database)
    (one,) = running.local("GET", "/deliveries?webhook=on-call&state=waiting").json["items"]
    assert (one["kind"], one["attempts"]) == ("model.failed", 0)
    shown = running.local("GET", f"/deliveries/{one['id']}")
    assert shown.json["title"] == "digits version 1 failed on server s1"
    assert running.local("POST", f"/deliveries/{one['id']}/retry").status == 200
    assert running.local("GET", "/deliveries?state=lost").status == 422
    assert running.local("GET", "/deliveries/nothing").status == 404


def test_a_mute_is_created_listed_and_deleted(running: Api) -> None:
    made = running.local("POST", "/mutes", {"model": "digits", "for_s": 3600, "note": "known"})
    assert made.status == 201
    (listed,) = running.local("GET", "/mutes").json["items"]
    assert listed == made.json
    assert running.local("DELETE", f"/mutes/{listed['id']}").status == 204
    assert running.local("DELETE", f"/mutes/{listed['id']}").status == 404


def test_whoever_reads_sees_no_path_of_a_url(running: Api, there: Receiver) -> None:
    created(running, there)
    login = {"Authorization": running.user("vera", "viewer")}
    shown = running.ask("GET", "/webhooks/on-call", headers=login)
    assert shown.status == 200
    assert "/hook" not in shown.text
    assert URL not in shown.text
