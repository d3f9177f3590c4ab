"""How much one language model takes on: answers in progress, and prompt tokens that wait. Pure."""

from backends.llm.settings import ServeSettings
from schedulers.llm.errors import TooMuchWaiting
from schedulers.llm.gateway.llm_reply import LLMReply

LEAST_S, MOST_S = 1.0, 60.0
SMOOTHING = 0.2


class Admission:
    """Books of what was let in; every ticket that was taken leaves once."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._answers = 0
        self._waiting_tokens = 0
        self._rate: float | None = None
        self._last: tuple[int, int] | None = None

    def admit(self, answers: int, tokens: int, engines: int) -> None:
        """Raises TooMuchWaiting where so much more, beside what is here, is too much.

        `engines`: how many serve now. One request alone is always let in, whatever its size.
        """
        settings = self._settings
        most = settings.max_running * max(engines, 1) + settings.max_waiting
        if self._answers and self._answers + answers > most:
            raise TooMuchWaiting(
                f"{self._answers} answers are running or waiting already, and {answers} more "
                f"would pass the limit of {most}",
                self._retry_after_s(),
            )
        if self._waiting_tokens and self._waiting_tokens + tokens > settings.max_waiting_tokens:
            raise TooMuchWaiting(
                f"{self._waiting_tokens} prompt tokens wait already, and {tokens} more would pass "
                f"the limit of {settings.max_waiting_tokens}",
                self._retry_after_s(),
            )

    def take(self, ticket: LLMReply, answers: int, tokens: int) -> None:
        """Count a ticket as so much from now on."""
        self._answers += answers - ticket.answers
        self._waiting_tokens += tokens - ticket.tokens
        ticket.answers, ticket.tokens = answers, tokens

    def start(self, ticket: LLMReply) -> None:
        """Its prompt does not wait any more."""
        self.take(ticket, ticket.answers, 0)

    def leave(self, ticket: LLMReply) -> None:
        """Nothing of it is here any more."""
        self.take(ticket, 0, 0)

    def note(self, tokens: int, now_ns: int) -> None:
        """So many tokens were computed, prompts and answers, since the start."""
        if self._last is not None and now_ns > self._last[1] and tokens > self._last[0]:
            rate = (tokens - self._last[0]) / (now_ns - self._last[1]) * 1e9
            before = rate if self._rate is None else self._rate
            self._rate = before + SMOOTHING * (rate - before)
        self._last = (tokens, now_ns)

    def _retry_after_s(self) -> float:
        """When half of what waits will have been computed, at the latest rate."""
        rate = self._rate or self._settings.step_tokens
        return min(max(self._waiting_tokens / 2 / rate, LEAST_S), MOST_S)
