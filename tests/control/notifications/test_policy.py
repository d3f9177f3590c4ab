"""When a message is sent again, and when it is given up."""

from datetime import UTC, datetime, timedelta

import pytest

from control.notifications.policy import (
    FIRST_PAUSE_S,
    GIVE_UP,
    JITTER,
    LONGEST_PAUSE_S,
    AttemptVerdict,
    DeliveryState,
    WebhookAnswer,
    after_attempt,
    due_at,
    pause_s,
)

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def tried(
    answer: WebhookAnswer, *, attempts: int = 1, failures: int = 0, age_s: float = 0
) -> AttemptVerdict:
    return after_attempt(
        answer,
        delivery="d1",
        attempts=attempts,
        failures=failures,
        first_at=NOW - timedelta(seconds=age_s),
        now=NOW,
    )


@pytest.mark.parametrize("status", [200, 202, 204])
def test_a_message_that_was_accepted_is_delivered_and_opens_its_webhook(status: int) -> None:
    verdict = tried(WebhookAnswer(status), failures=7)
    assert verdict == AttemptVerdict(DeliveryState.DELIVERED, NOW, None, 0)


@pytest.mark.parametrize("status", [0, 408, 429, 500, 502, 503, 504])
def test_a_receiver_that_is_away_holds_up_all_its_messages_alike(status: int) -> None:
    verdict = tried(WebhookAnswer(status, error="" if status else "refused"), attempts=4)
    assert verdict.state is DeliveryState.WAITING
    assert verdict.next_at == NOW
    assert verdict.hold_until is not None
    assert FIRST_PAUSE_S <= (verdict.hold_until - NOW).total_seconds() <= FIRST_PAUSE_S * 1.2


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 410, 413])
def test_a_message_that_is_refused_waits_longer_than_those_behind_it(status: int) -> None:
    verdict = tried(WebhookAnswer(status), attempts=4)
    assert verdict.hold_until is not None
    assert verdict.next_at - NOW >= 4 * (verdict.hold_until - NOW)


def test_pauses_double_up_to_a_quarter_of_an_hour() -> None:
    pauses = [pause_s(failures, "d1") for failures in range(1, 40)]
    for number, pause in enumerate(pauses):
        base = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number)
        assert base <= pause <= base * (1 + JITTER)


def test_messages_that_failed_together_do_not_come_back_together() -> None:
    assert len({pause_s(3, f"d{number}") for number in range(50)}) == 50


def test_a_receiver_is_left_alone_for_as_long_as_it_asks_but_no_longer_than_ours() -> None:
    asked = tried(WebhookAnswer(429, retry_after_s=120))
    assert asked.hold_until == NOW + timedelta(seconds=120)
    assert tried(WebhookAnswer(503, retry_after_s=1e9)).hold_until == NOW + timedelta(
        seconds=LONGEST_PAUSE_S
    )


def test_a_message_is_given_up_after_a_day() -> None:
    away = WebhookAnswer(0, error="refused")
    day_s = GIVE_UP.total_seconds()
    assert tried(away, age_s=day_s - 1).state is DeliveryState.WAITING
    assert tried(away, age_s=day_s).state is DeliveryState.FAILED
    assert tried(WebhookAnswer(200), age_s=day_s).state is DeliveryState.DELIVERED


def test_a_receiver_that_is_down_for_a_day_is_tried_about_a_hundred_times() -> None:
    at, failures, tries = 0.0, 0, 0
    while at < GIVE_UP.total_seconds():
        failures, tries = failures + 1, tries + 1
        at += pause_s(failures, f"d{tries % 200}")
    assert 80 <= tries <= 120


def test_what_says_the_same_waits_until_the_window_is_over() -> None:
    assert due_at(None, 600, NOW) == NOW
    assert due_at(NOW - timedelta(seconds=100), 600, NOW) == NOW + timedelta(seconds=500)
    assert due_at(NOW - timedelta(hours=1), 600, NOW) == NOW


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (WebhookAnswer(204), ""),
        (WebhookAnswer(0, error="no answer within 10 s"), "no answer within 10 s"),
        (WebhookAnswer(404, "no such hook"), "the receiver answers 404: no such hook"),
        (WebhookAnswer(500), "the receiver answers 500"),
        (WebhookAnswer(308), "the receiver answers 308: redirects are not followed"),
    ],
)
def test_words_say_what_went_wrong(answer: WebhookAnswer, words: str) -> None:
    assert answer.words == words
