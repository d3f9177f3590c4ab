"""What changes logits before a token is chosen: penalties, biases, tokens that are not allowed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backends.llm.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Draw:
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


def adjust(logits: Tensor, draws: Sequence[Draw]) -> None:
    """Apply each row's wishes to float32 `logits` [rows, vocabulary], in place."""
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


def _penalise(row: np.ndarray, draw: Draw) -> None:
    params, tokens = draw.params, np.array(draw.tokens, np.int64)
    if params.repetition_penalty != 1.0:
        found, penalty = row[tokens], np.float32(params.repetition_penalty)
        # A token that is there several times gets the same value each time.
        row[tokens] = np.where(found > 0, found / penalty, found * penalty)
    if len(tokens) > draw.prompt:
        said, counts = np.unique(tokens[draw.prompt :], return_counts=True)
        row[said] -= params.presence_penalty + params.frequency_penalty * counts
