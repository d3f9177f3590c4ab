"""Why the language scheduler does not take a request.

SchedulingError (schedulers/errors.py)
├── PromptTooLong        the prompt leaves no room for an answer; it never will
├── SenselessRequest     a field of the request cannot be followed; names it
├── AnswerUnread         the client does not read; its answer was given up
└── QueueFull (schedulers/errors.py)
    └── TooMuchWaiting   requests or prompt tokens waiting are at their bound; says when to return
"""

from schedulers.errors import QueueFull, SchedulingError


class PromptTooLong(SchedulingError):
    """The prompt and one answer token do not fit the context or the cache."""


class SenselessRequest(SchedulingError):
    """A request that contradicts itself or the model."""


class AnswerUnread(SchedulingError):
    """More of an answer waited to be read than is kept."""


class TooMuchWaiting(QueueFull):
    """The queue is at its bound; `retry_after_s` estimates when half of it will be gone."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
