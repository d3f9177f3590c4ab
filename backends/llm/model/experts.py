"""A mixture of experts: a router sends each row to a few of many feed-forward parts."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from backends.llm.config.decoder import ExpertsConfig
from backends.llm.weights.stream import Dense, Experts


def mix(
    experts: Experts,
    config: ExpertsConfig,
    rows: Tensor,
    run: Callable[[Dense, Tensor], Tensor],
) -> Tensor:
    """[T, hidden] → [T, hidden]: each row's experts, weighted; `run` applies one of them."""
    exact = rows.float()
    shares = functional.linear(exact, experts.router).softmax(-1)
    weights, chosen = shares.topk(config.per_token, dim=-1)
    if config.renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    mixed = torch.zeros_like(exact)
    for index in sorted(set(chosen.flatten().tolist())):
        who, which = torch.where(chosen == index)
        result = run(experts.each[index], rows[who]).float()
        mixed.index_add_(0, who, result * weights[who, which, None])
    if experts.shared is not None and experts.shared_gate is not None:
        share = torch.sigmoid(functional.linear(exact, experts.shared_gate))
        mixed += share * run(experts.shared, rows).float()
    return mixed.to(rows.dtype)
