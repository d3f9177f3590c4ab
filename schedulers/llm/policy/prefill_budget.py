"""How many prompt tokens a step may take beside answers, so that nobody waits long. Pure policy.

What a prompt's token costs depends on the model, the machine and how far into the prompt it is:
attention over 4,000 tokens costs several times what the rest does. So it is learned from the steps
themselves, as is what the answers alone take.
"""

LEAST_TOKENS = 16
"""A prompt advances by so many whatever a step takes: one block."""
NEW = 0.5
"""Weight of the latest step against those before it."""


class PrefillBudget:
    """`most`: prompt tokens of any step. `target_s`: how long a step with answers in it is to take;
    prompts get half of that even where the answers alone take longer."""

    def __init__(self, most: int, target_s: float) -> None:
        self._most = most
        self._target_s = target_s
        self._answers_s = 0.0
        self._token_s = 0.0

    @property
    def prompt_tokens(self) -> int:
        """For a step in which answers get their next token."""
        room_s = max(self._target_s - self._answers_s, self._target_s / 2)
        if room_s >= self._most * self._token_s:
            return self._most
        return max(int(room_s / self._token_s), min(LEAST_TOKENS, self._most))

    def note(self, answers: int, prompt_tokens: int, took_s: float) -> None:
        """A step of so many answers' and prompts' tokens took so long."""
        if prompt_tokens:
            rest_s = max(took_s - (self._answers_s if answers else 0.0), 0.0)
            self._token_s += NEW * (rest_s / prompt_tokens - self._token_s)
        elif answers:
            self._answers_s += NEW * (took_s - self._answers_s)
