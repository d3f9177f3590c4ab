"""Log-probabilities as the model gave them, before any temperature, penalty or cut."""

import numpy as np
from torch import Tensor

from backends.llm.largest import largest
from backends.llm.scored import Scored


def score(logits: Tensor, token: int, count: int) -> Scored:
    """Of one row of float32 logits [vocabulary]: `token`, and the `count` likeliest."""
    values, total = logits.numpy(), logits.logsumexp(0).item()
    best = largest(values, min(count, len(values))) if count else np.empty(0, np.int64)
    best = best[np.argsort(-values[best], kind="stable")]
    return Scored(
        logprob=float(values[token]) - total,
        rank=int(np.count_nonzero(values > values[token])),
        likeliest=tuple((int(one), float(values[one]) - total) for one in best),
    )
