"""The bodies of messages, and a signature that others can check."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime

from control.notifications.payload import (
    BodyFormat,
    MessageData,
    WebhookMessage,
    body_of,
    headers_of,
    secret_of,
)

AT = datetime(2026, 11, 24, 12, tzinfo=UTC)
SECRET = secret_of(bytes(range(32)))


def message(**changes: object) -> WebhookMessage:
    data = {
        "webhook": "on-call",
        "subject": "rollout:r1",
        "models": ("digits",),
        "version": 2,
        "title": "digits rolled back",
        "reason": "error rate 10.1 % against 0.0 %",
        "count": 1,
        "first_at": AT,
        "last_at": AT,
        "url": "https://models.example.com/rollouts/r1",
        "actor": "",
        "dropped": 0,
    }
    return WebhookMessage(
        id="01h", type="rollout.rolled_back", timestamp=AT, data=MessageData(**{**data, **changes})
    )


def test_json_has_id_type_time_and_what_it_is_about() -> None:
    found = json.loads(body_of(message(), BodyFormat.JSON))
    assert (found["id"], found["type"]) == ("01h", "rollout.rolled_back")
    assert found["timestamp"] == "2026-11-24T12:00:00Z"
    assert found["data"]["models"] == ["digits"]
    assert found["data"]["count"] == 1


def test_slack_gets_one_text_in_which_nothing_of_ours_is_markup_of_theirs() -> None:
    shown = message(reason="<!channel> & <http://evil|x>", count=3, actor="user:ada")
    found = json.loads(body_of(shown, BodyFormat.SLACK))
    assert found.keys() == {"text"}
    assert "&lt;!channel&gt; &amp; &lt;http://evil|x&gt;" in found["text"]
    assert found["text"].startswith("*digits rolled back*\n")
    assert "3 times from 2026-11-24T12:00:00.000Z" in found["text"]
    assert "<https://models.example.com/rollouts/r1|Open in the console>" in found["text"]


def test_the_signature_is_an_hmac_over_id_time_and_body() -> None:
    body = body_of(message(), BodyFormat.JSON)
    headers = headers_of("01h", body, [SECRET], AT)
    signed = b"01h." + headers["webhook-timestamp"].encode() + b"." + body
    right = base64.b64encode(hmac.digest(bytes(range(32)), signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{right}"
    assert headers["webhook-timestamp"] == str(int(AT.timestamp()))


def test_the_known_vector_of_standard_webhooks_verifies() -> None:
    """From the specification's reference libraries."""
    from control.notifications.payload import signature

    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    found = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert found == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_rotation_signs_with_both_secrets() -> None:
    other = secret_of(bytes(32))
    both = headers_of("01h", b"{}", [SECRET, other], AT)["webhook-signature"].split(" ")
    alone = [headers_of("01h", b"{}", [one], AT)["webhook-signature"] for one in (SECRET, other)]
    assert both == alone
