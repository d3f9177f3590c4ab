"""From logits to tokens, for all rows of a step at once.

A row's randomness is one number made of its seed and position alone, which decides between the
tokens it may take: the same seed gives the same text in any batch, and after a preemption.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from torch import Tensor

from backends.llm.likelihood import score
from backends.llm.penalties import Draw, adjust
from backends.llm.pick import Pick, pick_plainly
from backends.llm.scored import Scored


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row's token, and its log-probability with those of the likeliest if it was asked for."""

    token: int
    scored: Scored | None


def sample(
    logits: Tensor, draws: Sequence[Draw], pick: Pick = pick_plainly
) -> list[Sampled | None]:
    """A token for each row of float32 `logits` [rows, vocabulary], which are overwritten.

    None for a row whose logits are not numbers: its request alone has failed.
    """
    before = [
        row.clone() if draw.params.logprobs is not None and draw.adjusts else row
        for row, draw in zip(logits, draws, strict=True)
    ]
    adjust(logits, draws)
    tokens = pick(logits, [draw.params for draw in draws], [_uniform(draw) for draw in draws])
    return [
        None if token < 0 else Sampled(token, _scored(row, token, draw.params.logprobs))
        for row, token, draw in zip(before, tokens, draws, strict=True)
    ]


def _scored(row: Tensor, token: int, count: int | None) -> Scored | None:
    return None if count is None else score(row, token, count)


def _uniform(draw: Draw) -> float:
    """In [0, 1), from the seed and the position of the token to come."""
    key = f"{draw.seed}/{len(draw.tokens)}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest()) / 2.0**64 * (1 - 2.0**-53)
