"""Which token comes next in each row: one rule, by our kernel and without it.

At temperature 0 it is the first of the largest logits. Else a token's weight is exp(logit /
temperature), the likeliest's being 1, and weights stay with: the `top_k` largest logits; of them
what is not below `min_p`; of them the fewest with the largest logits that have together the share
`top_p`. Among equals those with lower ids come first. A number from 0 to below 1 then falls into
the share of one of those that are left, in the order of their ids.

A row's token depends on nothing but the row. Both ways take the same one, unless rounding decides:
a weight is known to 1e-7 of it.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from torch import Tensor

from backends.llm.errors import NoKernels
from backends.llm.kernels.library import at, kernels
from backends.llm.sampling.largest import largest, likeliest
from backends.llm.sampling.params import SamplingParams

Values = np.ndarray
Places = np.ndarray
Truths = np.ndarray
Pick = Callable[[Tensor, Sequence[SamplingParams], Sequence[float]], list[int]]
"""The tokens of float32 logits [rows, vocabulary], which are left as they are, for each row's
parameters and its number from 0 to below 1; -1 for a row whose logits are not numbers."""

STEEPEST = 1e30
"""What differences of logits are multiplied with at most, for temperatures next to 0."""
STRETCH = 512
BINS = 1024
FEW = 4096
"""So many logits are sorted at once."""
MANY = 3
"""Where more than one in so many may be among those that stay, a sample says where the cut is."""
EACH = 32
"""One in so many is in the sample."""


def choose_pick(compiled: bool = True) -> Pick:
    """By our kernel if it can be had and `compiled`, else without; `choose_ops` logs why."""
    if compiled:
        with suppress(NoKernels):
            kernels()
            return pick_by_kernel
    return pick_plainly


def choose_device_pick(device: torch.device, compiled: bool = True) -> Pick | None:
    """One for logits that lie on `device`, by our kernel there; None where there is none."""
    if device.type != "cuda" or not compiled:
        return None
    try:
        from backends.llm.kernels.choose_tokens import choose
    except ImportError:
        return None
    return partial(pick_by, choose)


def pick_by(
    choose: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    params: Sequence[SamplingParams],
    uniforms: Sequence[float],
) -> list[int]:
    """See Pick; `choose` is that of `backends.llm.kernels.choose_tokens`. The first of the largest
    is torch's where no row wants another."""
    if all(one.temperature == 0 for one in params):
        tops, firsts = logits.max(1)
        return torch.where(tops.abs() < torch.inf, firsts, -1).tolist()
    wishes = torch.tensor(
        [
            [
                min(1 / one.temperature, STEEPEST) if one.temperature else 0.0,
                one.top_k, one.top_p, one.min_p, uniform,
            ]
            for one, uniform in zip(params, uniforms, strict=True)
        ],
        dtype=torch.float64,
    )  # fmt: skip
    found: list[int] = choose(logits, wishes.to(logits.device)).tolist()
    return found


def pick_by_kernel(
    logits: Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]
) -> list[int]:
    """See Pick; 0.1 to 0.5 ms for a row of 150,000."""
    wishes = torch.tensor(
        [
            [one.temperature, one.top_k, one.top_p, one.min_p, uniform]
            for one, uniform in zip(params, uniforms, strict=True)
        ],
        dtype=torch.float64,
    )
    rows = logits.contiguous()
    tokens = torch.empty(len(rows), dtype=torch.int64)
    kernels().sample_rows(at(rows), at(wishes), at(tokens), *rows.shape)
    return tokens.tolist()


def pick_plainly(
    logits: Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]
) -> list[int]:
    """See Pick; 0.7 to 1.2 ms for a row of 150,000."""
    first = likeliest(logits)
    tops = logits.gather(1, first[:, None]).squeeze(1).tolist()
    return [
        _pick_one(*row)
        for row in zip(logits.numpy(), tops, first.tolist(), params, uniforms, strict=True)
    ]


class _SamplingScratch(threading.local):
    """What a thread works in. Fresh memory for every step would cost more than the step: the system
    hands it out page by page."""

    def __init__(self) -> None:
        self._floats = [np.empty(0, np.float32)] * 2
        self._truths = [np.empty(0, np.bool_)] * 2

    def floats(self, size: int) -> list[Values]:
        """Two arrays."""
        if len(self._floats[0]) < size:
            self._floats = [np.empty(size, np.float32) for _ in range(2)]
        return [one[:size] for one in self._floats]

    def truths(self, size: int) -> list[Truths]:
        """Two arrays."""
        if len(self._truths[0]) < size:
            self._truths = [np.empty(size, np.bool_) for _ in range(2)]
        return [one[:size] for one in self._truths]


_room = _SamplingScratch()


def _pick_one(row: Values, top: float, first: int, params: SamplingParams, uniform: float) -> int:
    if not abs(top) < np.inf:
        return -1
    if params.temperature == 0:
        return first
    ids = None
    if 0 < params.top_k < len(row):
        ids = largest(row, params.top_k)
        row = row[ids]
    weights, _ = _room.floats(len(row))
    with np.errstate(over="ignore"):
        np.subtract(row, np.float32(top), out=weights)
        weights *= np.float32(min(1 / params.temperature, STEEPEST))
    np.exp(weights, out=weights)
    if params.min_p > 0:
        weights *= weights >= np.float32(params.min_p)
    if params.top_p < 1:
        near, weights = _keep_share(row, weights, params.top_p)
        if near is not None:
            ids = near if ids is None else ids[near]
    place = _place(weights, uniform)
    return place if ids is None else int(ids[place])


def _keep_share(logits: Values, weights: Values, top_p: float) -> tuple[Places | None, Values]:
    """The weights of the likeliest that together have this share, and their places; None for the
    places of all, where the others' weights are 0."""
    total = float(weights.sum(dtype=np.float64))
    # Even all together, tokens this unlikely would not make up what may be cut off.
    dust = np.float32((1 - top_p) * total / len(weights) / 2)
    may_stay, _ = _room.truths(len(weights))
    if dust > 0:
        np.greater_equal(weights, dust, out=may_stay)
    else:
        np.greater(weights, 0, out=may_stay)
    if len(weights) > FEW and np.count_nonzero(may_stay) * MANY > len(weights):
        _keep_of_many(logits, weights, top_p, total)
        return None, weights
    near = np.flatnonzero(may_stay)
    logits, weights = logits[near], weights[near]
    least, ties = _cut(logits, weights, top_p * total)
    kept = logits >= least
    kept[np.flatnonzero(logits == least)[ties:]] = False
    return near[kept], weights[kept]


def _keep_of_many(logits: Values, weights: Values, top_p: float, total: float) -> None:
    """Make the weights 0 of what is cut off.

    A sample says between which logits the cut lies; only those are counted one by one. Where it is
    mistaken all are.
    """
    wanted, sample = top_p * total, logits[::EACH].copy()
    order = np.argsort(-sample)
    sample, sums = sample[order], weights[::EACH][order].cumsum(dtype=np.float64)
    guess = int(np.searchsorted(sums, top_p * sums[-1]))
    margin = 4 * int(len(sample) ** 0.5)
    high = sample[guess - margin] if guess >= margin else np.inf
    low = sample[guess + margin] if guess + margin < len(sample) else -np.inf
    (_, above), (one, other) = _room.floats(len(logits)), _room.truths(len(logits))
    np.multiply(weights, np.greater(logits, high, out=one), out=above)
    reached = float(above.sum(dtype=np.float64))
    np.less_equal(logits, high, out=one)
    one &= np.greater_equal(logits, low, out=other)
    between = np.flatnonzero(one)
    between = between[weights[between] > 0]
    if not reached < wanted <= reached + float(weights[between].sum(dtype=np.float64)):
        reached, between = 0.0, np.flatnonzero(weights)
    least, ties = _cut(logits[between], weights[between], wanted, reached)
    weights *= np.greater_equal(logits, least, out=one)
    weights[between[logits[between] == least][ties:]] = 0


def _cut(logits: Values, weights: Values, wanted: float, reached: float = 0.0) -> tuple[float, int]:
    """The least logit of the fewest that have the weight `wanted`, and how many equal to it.
    `reached`: the weight of larger ones that are not among these.

    Logits are counted into bins; that in which the sum passes `wanted` is divided anew.
    """
    while len(logits) > FEW:
        high, low = logits.max(), logits.min()
        scale = BINS / (float(high) - float(low)) if high > low else np.inf
        if scale > np.finfo(np.float32).max:
            break
        bins = np.minimum((high - logits) * np.float32(scale), BINS - 1).astype(np.int64)
        sums = np.bincount(bins, weights, BINS).cumsum() + reached
        chosen = min(int(np.searchsorted(sums, wanted)), BINS - 1)
        reached = float(sums[chosen - 1]) if chosen else reached
        here = bins == chosen
        logits, weights = logits[here], weights[here]
    order = np.argsort(-logits, kind="stable")
    sums = weights[order].cumsum(dtype=np.float64) + reached
    last = min(int(np.searchsorted(sums, wanted)), len(order) - 1)
    least = logits[order[last]]
    return float(least), int(np.count_nonzero(logits[order[: last + 1]] == least))


def _place(weights: Values, uniform: float) -> int:
    """The place at which the running sum of weights passes its share `uniform`."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), STRETCH), dtype=np.float64).cumsum()
    target = uniform * float(sums[-1])
    stretch = _passed(sums, target)
    before = float(sums[stretch - 1]) if stretch else 0.0
    within = weights[stretch * STRETCH : (stretch + 1) * STRETCH].cumsum(dtype=np.float64)
    return stretch * STRETCH + _passed(within + before, target)


def _passed(sums: Values, target: float) -> int:
    """Where running sums pass `target`; the last at which they grow if rounding left it beyond."""
    last = int(np.searchsorted(sums, sums[-1]))
    return min(int(np.searchsorted(sums, target, side="right")), last)
