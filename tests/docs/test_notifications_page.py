"""docs/notifications.md: its table is the code's, and its receiver verifies what is sent."""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from control.notifications.kinds import MEANINGS
from control.notifications.outbox import MOST_WAITING
from control.notifications.payload import MessageData, WebhookMessage, headers_of, secret_of
from control.notifications.policy import FIRST_PAUSE_S, GIVE_UP, LONGEST_PAUSE_S
from control.notifications.sender import SEND_S
from control.notifications.terms import USUAL_WINDOW_S
from support.doc_pages import ROOT, blocks_of

PAGE = ROOT / "docs" / "notifications.md"
SECRET, OLD, STRANGER = (secret_of(bytes([number]) * 32) for number in range(3))
BODY = b'{"id":"01h"}'


@pytest.fixture(scope="module")
def is_ours() -> Callable[[str, dict[str, str], bytes], bool]:
    (block,) = (one for one in blocks_of(PAGE) if one.title == "verify.py")
    assert len(block.text.splitlines()) <= 12
    names: dict[str, Any] = {}
    exec(block.text, names)
    found: Callable[[str, dict[str, str], bytes], bool] = names["is_ours"]
    return found


def sent(*secrets: str, age_s: float = 0.0) -> dict[str, str]:
    return headers_of("01h", BODY, secrets, datetime.fromtimestamp(time.time() - age_s, UTC))


def test_the_receiver_of_the_page_takes_what_we_sign(is_ours: Any) -> None:
    assert is_ours(SECRET, sent(SECRET), BODY)
    for secret in (SECRET, OLD):
        assert is_ours(secret, sent(SECRET, OLD), BODY)


def test_the_receiver_of_the_page_refuses_everything_else(is_ours: Any) -> None:
    assert not is_ours(STRANGER, sent(SECRET), BODY)
    assert not is_ours(SECRET, sent(SECRET), BODY + b" ")
    assert not is_ours(SECRET, {**sent(SECRET), "webhook-id": "02h"}, BODY)
    assert not is_ours(SECRET, sent(SECRET, age_s=301), BODY)


def test_the_table_of_kinds_is_the_codes() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {str(kind): meaning for kind, meaning in MEANINGS.items()}


def test_the_example_has_the_fields_of_a_message() -> None:
    (example,) = (one for one in blocks_of(PAGE) if one.language == "json")
    found = json.loads(example.text)
    assert found.keys() == {*WebhookMessage.__struct_fields__}
    assert found["data"].keys() == {*MessageData.__struct_fields__}


def test_the_bounds_of_the_page_are_the_codes() -> None:
    text = " ".join(PAGE.read_text().split())
    assert f"after {FIRST_PAUSE_S:g} s, doubled each time up to {LONGEST_PAUSE_S / 60:g}" in text
    assert f"After {GIVE_UP.total_seconds() / 3600:g} hours a message is given up" in text
    assert f"{MOST_WAITING} messages at most wait" in text
    assert f"no answer in {SEND_S:g} s" in text
    assert f"within `--window` ({USUAL_WINDOW_S // 60} minutes)" in text
