"""When a message is sent, sent again or given up: numbers and moments in, a decision out. Pure."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 900.0
"""Before the second try, and between the later ones at most; it doubles in between."""

GIVE_UP = timedelta(hours=24)
"""How old a message may become before it is not tried again."""

JITTER = 0.2
"""Of a pause, at most, is added to it, so that what failed together does not come back together."""

_LATER = (408, 425, 429, 500, 502, 503, 504)
"""Statuses of a receiver that is not to blame for the message: busy, or not there."""


class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"  # given up, or refused as what may not be sent there
    MUTED = "muted"  # a mute or an acknowledgement came before it was sent


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """What came of one try. `status` 0: there was no answer, and `error` says why. `text`: the
    beginning of the answer. `retry_after_s`: what the receiver asked for, 0 for nothing."""

    status: int
    text: str = ""
    error: str = ""
    took_s: float = 0.0
    retry_after_s: float = 0.0

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """Why it did not go well, in a line; "" if it did."""
        if self.accepted:
            return ""
        if self.error:
            return self.error
        if 300 <= self.status < 400:
            return f"the receiver answers {self.status}: redirects are not followed"
        said = f": {self.text}" if self.text else ""
        return f"the receiver answers {self.status}{said}"


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """What becomes of a message and of its webhook after a try. `next_at`: when the message may be
    tried again; `hold_until`: before which nothing is sent to the webhook, None for at once;
    `failures`: its tries in a row that failed."""

    state: DeliveryState
    next_at: datetime
    hold_until: datetime | None
    failures: int


def pause_s(failures: int, seed: str) -> float:
    """How long to wait after so many failures in a row; the same for the same `seed`."""
    grown = FIRST_PAUSE_S * 2.0 ** min(failures - 1, 32)
    share = int.from_bytes(hashlib.sha256(f"{seed}:{failures}".encode()).digest()[:4]) / 2**32
    return min(LONGEST_PAUSE_S, grown) * (1 + JITTER * share)


def after_attempt(
    answer: WebhookAnswer,
    *,
    delivery: str,
    attempts: int,
    failures: int,
    first_at: datetime,
    now: datetime,
) -> AttemptVerdict:
    """Decide after a try of the message `delivery`, its `attempts`-th; `failures` as before it.

    A receiver that is busy or not there holds up all that waits for it; one that refuses a message
    holds up that one longer, and lets the others pass.
    """
    if answer.accepted:
        return AttemptVerdict(DeliveryState.DELIVERED, now, None, 0)
    failures += 1
    hold_s = max(pause_s(failures, delivery), min(answer.retry_after_s, LONGEST_PAUSE_S))
    hold_until = now + timedelta(seconds=hold_s)
    if now - first_at >= GIVE_UP:
        return AttemptVerdict(DeliveryState.FAILED, now, hold_until, failures)
    is_away = not answer.status or answer.status in _LATER
    own_s = 0.0 if is_away else pause_s(attempts, delivery)
    next_at = now + timedelta(seconds=own_s)
    return AttemptVerdict(DeliveryState.WAITING, next_at, hold_until, failures)


def due_at(last_sent: datetime | None, window_s: float, now: datetime) -> datetime:
    """When a new message of the same subject and reason is sent, if the one before was at
    `last_sent`: until then what comes is counted on it."""
    return now if last_sent is None else max(now, last_sent + timedelta(seconds=window_s))
