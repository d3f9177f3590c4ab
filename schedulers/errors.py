"""Why a scheduler does not answer.

SchedulingError
├── QueueFull          accepted nothing; try again later
├── Draining           the version is going away; accepted nothing
├── BadSequence        a request that cannot be one of a sequence; accepted nothing
│   └── UnknownSequence   it continues a sequence that nobody has started, or that is over
├── DeadlineExceeded   waited longer than the request allowed
├── Cancelled          the client has disconnected
├── CallsTooDeep       too many models wait for each other's answers; names the circle
├── EnsembleFailed     an ensemble cannot go on with a request
└── ShutDown           closed with requests inside that could not finish in time
"""


class SchedulingError(Exception):
    """Base of everything `schedulers` raises."""


class QueueFull(SchedulingError):
    """The queue is at its bound. `retry_after_s`: when to come back, where that can be told."""

    retry_after_s: float | None = None


class Draining(SchedulingError):
    """No new requests: the scheduler is ending."""


class BadSequence(SchedulingError):
    """The request has no sequence, or asks of one what no sequence allows."""


class UnknownSequence(BadSequence):
    """The request continues a sequence that does not live here."""


class DeadlineExceeded(SchedulingError):
    """The request waited longer than its deadline allowed."""


class Cancelled(SchedulingError):
    """Nobody waits for the answer any more."""


class CallsTooDeep(SchedulingError):
    """So many models wait for each other on behalf of one request that it must be a circle."""


class EnsembleFailed(SchedulingError):
    """An ensemble cannot go on with a request, whose steps have all answered."""


class ShutDown(SchedulingError):
    """The scheduler closed before this request could be answered."""
