"""From logits to tokens, for all rows of a step at once.

A row's randomness is one number made of its seed and position alone, which decides between the
tokens it may take: the same seed gives the same text in any batch, and after a preemption.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from backends.llm.sampling.largest import largest
from backends.llm.sampling.params import SamplingParams
from backends.llm.sampling.select_tokens import Pick, pick_plainly
from backends.llm.sampling.token_logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """One row's choice. `tokens`: the prompt, `prompt` tokens long, and the answer so far.

    `seed`: the request's own. `banned`: tokens that may not come now (a stop token before the
    answer's minimum). `allowed`: bool [vocabulary] or None for all, from a grammar. Where it
    leaves nothing but banned tokens, one of these comes: a grammar is never broken.
    """

    params: SamplingParams
    tokens: Sequence[int]
    prompt: int
    seed: int
    banned: Sequence[int] = ()
    allowed: Tensor | None = None

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before it."""
        biased = self.params.penalises or bool(self.params.logit_bias)
        return biased or bool(self.banned) or self.allowed is not None

    @property
    def only_picks(self) -> bool:
        """Whether nothing but the token is wanted, of logits as they are."""
        return self.params.logprobs is None and not self.adjusts


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """What a forward pass brought for one span.

    `token`: the one that was chosen; None where none was to be, or its logits were not numbers.
    `scored`: its log-probability with those of the likeliest, where they are wanted. `prompt`: of a
    span that scores the prompt, what each of its tokens after the first is like, and the one that
    follows if that is known.
    """

    token: int | None = None
    scored: TokenLogprobs | None = None
    prompt: tuple[TokenLogprobs, ...] = ()


def sample(
    logits: Tensor, draws: Sequence[SamplingRow], pick: Pick = pick_plainly
) -> list[ForwardResult]:
    """A token for each row of float32 `logits` [rows, vocabulary], which are overwritten.

    Without a token for a row whose logits are not numbers: its request alone has failed.
    """
    before = [
        row.clone() if draw.params.logprobs is not None and draw.adjusts else row
        for row, draw in zip(logits, draws, strict=True)
    ]
    adjust(logits, draws)
    tokens = pick(logits, [draw.params for draw in draws], [_uniform(draw) for draw in draws])
    return [
        ForwardResult(token, _scored(row, token, draw.params.logprobs))
        if token >= 0
        else ForwardResult()
        for row, token, draw in zip(before, tokens, draws, strict=True)
    ]


def sample_on(
    logits: Tensor, draws: Sequence[SamplingRow], pick: Pick, device_pick: Pick
) -> list[ForwardResult]:
    """The same for logits on a device: `device_pick` chooses there for rows of which nothing else
    is wanted; those of the others come to the CPU."""
    there = [row for row, draw in enumerate(draws) if draw.only_picks]
    here = [row for row, draw in enumerate(draws) if not draw.only_picks]
    results: dict[int, ForwardResult] = {}
    if here:
        chosen = sample(logits[here].cpu(), [draws[row] for row in here], pick)
        results |= zip(here, chosen, strict=True)
    if there:
        rows = [draws[row] for row in there]
        tokens = device_pick(
            logits[there] if here else logits,
            [row.params for row in rows],
            [_uniform(row) for row in rows],
        )
        chosen = [ForwardResult(token) if token >= 0 else ForwardResult() for token in tokens]
        results |= zip(there, chosen, strict=True)
    return [results[row] for row in range(len(draws))]


def _scored(row: Tensor, token: int, count: int | None) -> TokenLogprobs | None:
    return None if count is None else score(row, token, count)


def _uniform(draw: SamplingRow) -> float:
    """In [0, 1), from the seed and the position of the token to come."""
    key = f"{draw.seed}/{len(draw.tokens)}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest()) / 2.0**64 * (1 - 2.0**-53)


def adjust(logits: Tensor, draws: Sequence[SamplingRow]) -> None:
    """Change logits before a token is chosen: penalties, biases, tokens that are not allowed.

    Applies each row's wishes to float32 `logits` [rows, vocabulary], in place.
    """
    for row, draw in enumerate(draws):
        if draw.params.penalises:
            _penalise(logits[row].numpy(), draw)
        if draw.params.logit_bias:
            tokens, biases = zip(*draw.params.logit_bias, strict=True)
            logits[row].index_add_(0, torch.tensor(tokens), torch.tensor(biases))
        if draw.allowed is not None:
            _allow(logits[row].numpy(), draw.allowed.numpy(), draw.banned)
        elif draw.banned:
            logits[row, list(draw.banned)] = -torch.inf


def _allow(row: np.ndarray, allowed: np.ndarray, banned: Sequence[int]) -> None:
    """Leave what a grammar allows, without what is banned if anything else is left."""
    # inf or -inf for each token, as the minimum with it is several times as fast as filling by a
    # mask, and without torch, whose threads would meet at each of these short operations.
    limits = allowed.astype(np.float32)
    limits *= 2
    limits -= 1
    if banned:
        others = limits.copy()
        others[list(banned)] = -1
        limits = others if others.max() > 0 else limits
    limits *= np.inf
    np.minimum(row, limits, out=row)


def _penalise(row: np.ndarray, draw: SamplingRow) -> None:
    params, tokens = draw.params, np.array(draw.tokens, np.int64)
    if params.repetition_penalty != 1.0:
        found, penalty = row[tokens], np.float32(params.repetition_penalty)
        # A token that is there several times gets the same value each time.
        row[tokens] = np.where(found > 0, found / penalty, found * penalty)
    if len(tokens) > draw.prompt:
        said, counts = np.unique(tokens[draw.prompt :], return_counts=True)
        row[said] -= params.presence_penalty + params.frequency_penalty * counts


def score(logits: Tensor, token: int, count: int) -> TokenLogprobs:
    """Log-probabilities as the model gave them, before any temperature, penalty or cut: of one row
    of float32 logits [vocabulary], `token` and the `count` likeliest."""
    values, total = logits.numpy(), logits.logsumexp(0).item()
    best = largest(values, min(count, len(values))) if count else np.empty(0, np.int64)
    best = best[np.argsort(-values[best], kind="stable")]
    return TokenLogprobs(
        logprob=float(values[token]) - total,
        rank=int(np.count_nonzero(values > values[token])),
        likeliest=tuple((int(one), float(values[one]) - total) for one in best),
    )
