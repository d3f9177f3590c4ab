"""From logits to tokens, for all rows of a step at once.

A row's randomness is one number made of its seed and position alone, which picks from the row's
cumulative probabilities: the same seed gives the same text in any batch, and after a preemption.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from backends.llm.likelihood import score
from backends.llm.params import SamplingParams
from backends.llm.penalties import Draw, adjust
from backends.llm.scored import Scored

CANDIDATES = 1024
"""How many of the likeliest tokens top-k and top-p look at before they sort the vocabulary."""
STRETCH = 512


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row's token, and its log-probability with those of the likeliest if it was asked for."""

    token: int
    scored: Scored | None


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[Sampled | None]:
    """A token for each row of float32 `logits` [rows, vocabulary], which are overwritten.

    None for a row whose logits are not numbers: its request alone has failed.
    """
    counts = [draw.params.logprobs for draw in draws]
    before = logits.clone() if any(count is not None for count in counts) else logits
    adjust(logits, draws)
    tokens = _pick(logits, draws)
    usable = torch.isfinite(logits.amax(dim=1)).tolist()
    return [
        Sampled(token, None if count is None else score(before[row], token, count))
        if good
        else None
        for row, (token, count, good) in enumerate(zip(tokens, counts, usable, strict=True))
    ]


def _pick(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    tokens = [0] * len(draws)
    greedy = [row for row, draw in enumerate(draws) if draw.params.temperature == 0]
    if greedy:
        best = likeliest(logits if len(greedy) == len(draws) else logits[greedy])
        for row, token in zip(greedy, best.tolist(), strict=True):
            tokens[row] = token
    groups: dict[bool, list[int]] = {}
    for row in set(range(len(draws))).difference(greedy):
        groups.setdefault(draws[row].params.truncates, []).append(row)
    for truncates, rows in groups.items():
        chosen = [draws[row] for row in rows]
        picked = _pick_group(logits[rows], chosen, truncates)
        for row, token in zip(rows, picked, strict=True):
            tokens[row] = token
    return tokens


def likeliest(logits: Tensor) -> Tensor:
    """The first of each row's largest logits: argmax, in two passes.

    torch's argmax takes fifteen times as long as its maximum; so the maximum of each stretch is
    found first, and then its place within the best stretch.
    """
    vocabulary = logits.shape[1]
    whole = vocabulary // STRETCH * STRETCH
    tops = [logits[:, :whole].view(len(logits), -1, STRETCH).amax(2)] if whole else []
    if vocabulary > whole:
        tops.append(logits[:, whole:].amax(1, keepdim=True))
    first = torch.cat(tops, dim=1).argmax(1, keepdim=True) * STRETCH
    places = (first + torch.arange(STRETCH)).clamp_max_(vocabulary - 1)
    within = logits.gather(1, places).argmax(1, keepdim=True)
    return places.gather(1, within).squeeze(1)


def _pick_group(logits: Tensor, draws: Sequence[Draw], truncates: bool) -> list[int]:
    temperatures = torch.tensor([[draw.params.temperature] for draw in draws])
    logits = (logits - logits.amax(dim=1, keepdim=True)) / temperatures
    uniform = torch.tensor([[_uniform(draw)] for draw in draws], dtype=torch.float64)
    if not truncates:
        return _invert(logits.exp(), uniform).tolist()
    kept, order = _truncate(logits, [draw.params for draw in draws])
    return order.gather(1, _invert(kept, uniform)[:, None]).squeeze(1).tolist()


def _truncate(logits: Tensor, params: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """Weights of the likeliest tokens, 0 for those cut off, and their ids; best first."""
    vocabulary = logits.shape[1]
    most = max(one.top_k for one in params)
    widths = [vocabulary] if most > CANDIDATES else [min(CANDIDATES, vocabulary), vocabulary]
    for width in widths:
        kept, order, complete = _truncate_within(logits, params, width)
        if complete:
            break
    return kept, order


def _truncate_within(
    logits: Tensor, params: Sequence[SamplingParams], width: int
) -> tuple[Tensor, Tensor, bool]:
    """The same of the `width` likeliest; and whether any token beyond them would be kept."""
    best, order = logits.topk(width, dim=1)
    floor = torch.tensor([[one.min_p] for one in params])
    top_k = torch.tensor([[one.top_k or logits.shape[1]] for one in params])
    top_p = torch.tensor([[one.top_p] for one in params])
    weights = best.exp()
    weights = weights.masked_fill((weights < floor) | (torch.arange(width) >= top_k), 0.0)
    # Top-p is a share of what top-k and min-p leave; without top-k that may lie beyond `width`.
    everything = logits.exp()
    everything = everything.masked_fill_(everything < floor, 0.0).sum(dim=1, keepdim=True)
    total = torch.where(top_k <= width, weights.sum(dim=1, keepdim=True), everything)
    reached = weights.cumsum(dim=1)
    closed = (top_k <= width) | (weights[:, -1:] == 0) | (reached[:, -1:] >= top_p * total)
    kept = weights.masked_fill(reached - weights >= top_p * total, 0.0)
    return kept, order, width == logits.shape[1] or bool(closed.all())


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """The index at which the running sum of each row's weights passes its share `uniform`."""
    sums = weights.double().cumsum(dim=1)
    places = torch.searchsorted(sums, uniform * sums[:, -1:], right=True).squeeze(1)
    # Rounding may step past the last token that has any weight.
    last = weights.shape[1] - 1 - (weights.flip(1) > 0).int().argmax(dim=1)
    return torch.minimum(places, last)


def _uniform(draw: Draw) -> float:
    """In [0, 1), from the seed and the position of the token to come."""
    key = f"{draw.seed}/{len(draw.tokens)}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest()) / 2.0**64 * (1 - 2.0**-53)
