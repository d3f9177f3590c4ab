"""Log-probabilities as the model gave them, before any temperature, penalty or cut."""

import torch
from torch import Tensor

from backends.llm.scored import Scored


def score(logits: Tensor, token: int, count: int) -> Scored:
    """Of one row of float32 logits [vocabulary]: `token`, and the `count` likeliest."""
    logprobs = torch.log_softmax(logits, dim=-1)
    values, tokens = logprobs.topk(min(count, len(logprobs)))
    return Scored(
        logprob=logprobs[token].item(),
        rank=int((logits > logits[token]).sum().item()),
        likeliest=tuple(zip(tokens.tolist(), values.tolist(), strict=True)),
    )
