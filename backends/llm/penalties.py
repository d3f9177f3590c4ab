"""What changes logits before a token is chosen: penalties, biases, tokens that are not allowed."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def adjust(logits: Tensor, draws: Sequence[Draw]) -> None:
    """Apply each row's wishes to float32 `logits` [rows, vocabulary], in place."""
    for row, draw in enumerate(draws):
        if draw.params.penalises:
            _penalise(logits[row], draw)
        if draw.params.logit_bias:
            tokens, biases = zip(*draw.params.logit_bias, strict=True)
            logits[row].index_add_(0, torch.tensor(tokens), torch.tensor(biases))
        refused = _refused(draw)
        if refused is not None:
            logits[row].masked_fill_(refused, -torch.inf)
        elif draw.banned:
            logits[row, list(draw.banned)] = -torch.inf


def _refused(draw: Draw) -> Tensor | None:
    """What a grammar, and the bans it has room for, leave out; None without a grammar."""
    if draw.allowed is None:
        return None
    refused = ~draw.allowed
    if draw.banned:
        stricter = refused.clone()
        stricter[list(draw.banned)] = True
        return refused if bool(stricter.all()) else stricter
    return refused


def _penalise(row: Tensor, draw: Draw) -> None:
    params, tokens = draw.params, torch.tensor(draw.tokens)
    if params.repetition_penalty != 1.0:
        seen = torch.unique(tokens)
        found = row[seen]
        penalty = params.repetition_penalty
        row[seen] = torch.where(found > 0, found / penalty, found * penalty)
    said, counts = torch.unique(tokens[draw.prompt :], return_counts=True)
    row[said] -= params.presence_penalty + params.frequency_penalty * counts
