"""How tokens are to be chosen, as one request asks for it; checked where it is made."""

from msgspec import Struct

MAX_LOGPROBS = 100
MAX_BIASED = 1024


class SamplingParams(Struct, frozen=True, array_like=True):
    """Raises ValueError naming the field, its value and what would work.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 cut nothing off; `min_p` cuts
    what is less likely than that share of the likeliest token. `repetition_penalty` divides
    (multiplies, below zero) the logits of tokens in prompt or answer; `presence_penalty` and
    `frequency_penalty` are subtracted for tokens of the answer. `logit_bias`: (token, addend).
    `logprobs`: None for none, else how many of the likeliest tokens to report beside the chosen.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, 100.0)
        _check("top_k", self.top_k, 0, 1 << 31)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _check("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        _check("logprobs", self.logprobs or 0, 0, MAX_LOGPROBS)
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if not 0.01 <= self.repetition_penalty <= 100.0:
            raise ValueError(
                f"repetition_penalty is {self.repetition_penalty}; it must be from 0.01 to 100"
            )
        if len(self.logit_bias) > MAX_BIASED:
            raise ValueError(
                f"logit_bias names {len(self.logit_bias)} tokens; at most {MAX_BIASED} are taken"
            )
        for token, bias in self.logit_bias:
            _check(f"logit_bias of token {token}", bias, -1e4, 1e4)

    @property
    def truncates(self) -> bool:
        """Whether unlikely tokens are cut off."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    @property
    def penalises(self) -> bool:
        """Whether what was said already counts."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1.0, 0.0, 0.0)


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be from {least:g} to {most:g}")
