"""How many log-probabilities one response may have. Pure.

All of them are kept until its last answer has ended, at some 100 bytes each, and take five times
that as a document. What is streamed is written as it comes and not kept, but for the prompt's.
"""

from collections.abc import Sequence

from schedulers.llm.generation import GenerationOutput
from server.openai.bodies.options import GenerationOptions
from server.rest.openai_errors import BadField

MOST_SCORES = 1 << 20
"""50,000 tokens with 20 likeliest each, or a million without."""


class LogprobLimit:
    """Counts the log-probabilities of one response. `scored`: likeliest tokens that are told of
    each prompt token, None for none of them."""

    def __init__(
        self, prompts: Sequence[tuple[int, ...]], options: GenerationOptions, scored: int | None
    ) -> None:
        self._options = options
        self._answers = len(prompts) * options.count
        logprobs = options.sampling.logprobs
        self._each = 0 if logprobs is None or options.stream else 1 + logprobs
        of_prompts = 0 if scored is None else sum(map(len, prompts)) * options.count * (1 + scored)
        self._of_prompts = self._count = of_prompts

    def check(self) -> None:
        """Raises BadField where the prompts and `max_tokens` allow for too many; an answer whose
        length the request does not say is looked at as it comes."""
        if self._of_prompts > MOST_SCORES:
            raise self._refusal(
                f"the prompts have {self._of_prompts} for {self._answers} answers",
                "prompt_logprobs",
            )
        tokens = self._options.max_tokens or 1
        count = self._answers * tokens * self._each
        if self._of_prompts + count > MOST_SCORES:
            raise self._refusal(
                f"{self._answers} answers of up to {tokens} tokens with {self._each} each may "
                f"have {count}",
                "max_tokens",
            )

    def add(self, output: GenerationOutput) -> None:
        """Raises BadField where that is too many."""
        if output.scored is None:
            return
        self._count += self._each
        if self._count > MOST_SCORES:
            raise self._refusal(f"{self._answers} answers have more", "max_tokens")

    def _refusal(self, what: str, field: str) -> BadField:
        return BadField(
            f"A response has at most {MOST_SCORES} log-probabilities; {what}. Please reduce n, the "
            "number of likeliest tokens (top_logprobs, logprobs, prompt_logprobs) or max_tokens, "
            "or stream the answers.",
            "n" if self._options.count > 1 else field,
        )
