"""The next token of each row, chosen on the device as a Triton kernel: logits stay there.

The rule is that of `backends.llm.sampling.select_tokens`. Nothing is sorted: what a cut leaves is
known by the smallest logit that stays, which is searched for by halves among the 2^32 there are.

Importing this needs Triton; with TRITON_INTERPRET=1 the kernel runs on tensors of the CPU.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

_BLOCK = 4096


def choose(logits: Tensor, wishes: Tensor) -> Tensor:
    """int64 [rows]; -1 for a row whose largest logit is no number.

    `logits`: float32 [rows, vocabulary]. `wishes`: float64 [rows, 5]: what differences of logits
    are multiplied with, 0 for the first of the largest; top_k, 0 for all; top_p; min_p; and a
    number from 0 to below 1.
    """
    tops, firsts = logits.max(1)
    tokens = torch.empty_like(firsts)
    _choose[(len(logits),)](
        logits, logits.stride(0), tops, firsts, wishes, tokens,
        VOCABULARY=logits.shape[1], BLOCK=_BLOCK, num_warps=8,
    )  # fmt: skip
    return tokens


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _order(numbers):  # type: ignore[no-untyped-def]
    """Whole numbers in the order of float32 ones; the two zeros are one."""
    bits = (numbers + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weights(numbers, top, steep, min_p):  # type: ignore[no-untyped-def]
    weight = tl.exp((numbers - top) * steep)
    return tl.where(weight >= min_p, weight, 0.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _count_from(row, least, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """How many logits are at least so large."""
    counts = tl.zeros([BLOCK], tl.int32)
    for at in range(0, VOCABULARY, BLOCK):
        token = at + tl.arange(0, BLOCK)
        numbers = tl.load(row + token, mask=token < VOCABULARY, other=float("-inf"))
        counts += ((_order(numbers) >= least) & (token < VOCABULARY)).to(tl.int32)
    return tl.sum(counts, 0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weight_from(  # type: ignore[no-untyped-def]
    row, least, top, steep, min_p, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr
):
    """What logits weigh that are at least so large."""
    sums = tl.zeros([BLOCK], tl.float64)
    for at in range(0, VOCABULARY, BLOCK):
        token = at + tl.arange(0, BLOCK)
        numbers = tl.load(row + token, mask=token < VOCABULARY, other=float("-inf"))
        weight = _weights(numbers, top, steep, min_p)
        sums += tl.where(_order(numbers) >= least, weight, 0.0).to(tl.float64)
    return tl.sum(sums, 0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weight_at(least, top, steep, min_p):  # type: ignore[no-untyped-def]
    """What one logit weighs, by its order."""
    bits = least ^ ((least >> 31) & 0x7FFFFFFF)
    return _weights(bits.to(tl.float32, bitcast=True), top, steep, min_p).to(tl.float64)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _choose(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0915 (is told all, in one function)
    logits, row_stride, tops, firsts, wishes, tokens, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr
):
    """Program (row). What stays: the logits above `least`, and the first `ties` of those equal."""
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * row_stride
    top, first = tl.load(tops + index), tl.load(firsts + index)
    steep = tl.load(wishes + 5 * index).to(tl.float32)
    top_k = tl.load(wishes + 5 * index + 1).to(tl.int32)
    top_p = tl.load(wishes + 5 * index + 2)
    min_p = tl.load(wishes + 5 * index + 3).to(tl.float32)
    uniform = tl.load(wishes + 5 * index + 4)
    is_number = tl.abs(top) < float("inf")
    if (steep == 0.0) | (is_number == 0):
        tl.store(tokens + index, tl.where(is_number, first, -1))
        return

    least = _order(float("-inf") + top * 0.0)
    ties = VOCABULARY
    if (top_k > 0) & (top_k < VOCABULARY):
        low, high = least.to(tl.int64), _order(top).to(tl.int64)
        for _ in range(32):
            middle = low + (high - low + 1) // 2
            enough = _count_from(row, middle.to(tl.int32), VOCABULARY, BLOCK) >= top_k
            low, high = tl.where(enough, middle, low), tl.where(enough, high, middle - 1)
        least = low.to(tl.int32)
        ties = top_k - _count_from(row, least + 1, VOCABULARY, BLOCK)
    if top_p < 1.0:
        above = _weight_from(row, least + 1, top, steep, min_p, VOCABULARY, BLOCK)
        equal = _weight_at(least, top, steep, min_p)
        wanted = top_p * (above + tl.where(equal > 0.0, ties * equal, 0.0))
        low, high = least.to(tl.int64), _order(top).to(tl.int64)
        for _ in range(32):
            middle = low + (high - low + 1) // 2
            weight = _weight_from(row, middle.to(tl.int32), top, steep, min_p, VOCABULARY, BLOCK)
            low = tl.where(weight >= wanted, middle, low)
            high = tl.where(weight >= wanted, high, middle - 1)
        before = least
        least = low.to(tl.int32)
        above = _weight_from(row, least + 1, top, steep, min_p, VOCABULARY, BLOCK)
        equal = tl.maximum(_weight_at(least, top, steep, min_p), 1e-300)
        needed = tl.ceil(tl.minimum((wanted - above) / equal, VOCABULARY * 1.0)).to(tl.int32)
        ties = tl.where(least == before, tl.minimum(ties, needed), needed)
        ties = tl.maximum(ties, 1)

    above = _weight_from(row, least + 1, top, steep, min_p, VOCABULARY, BLOCK)
    equal = _weight_at(least, top, steep, min_p)
    whole = above + tl.where(equal > 0.0, ties * equal, 0.0)
    target, running = uniform * whole, whole * 0.0
    seen, found, last = ties * 0, VOCABULARY + ties * 0, ties * 0
    for at in range(0, VOCABULARY, BLOCK):
        token = at + tl.arange(0, BLOCK)
        numbers = tl.load(row + token, mask=token < VOCABULARY, other=float("-inf"))
        order = _order(numbers)
        same = (order == least).to(tl.int32)
        stays = (order > least) | ((same > 0) & (seen + tl.cumsum(same, 0) <= ties))
        weight = tl.where(stays, _weights(numbers, top, steep, min_p), 0.0).to(tl.float64)
        passed = (running + tl.cumsum(weight, 0) > target) & (weight > 0.0)
        found = tl.minimum(found, tl.min(tl.where(passed, token, VOCABULARY), 0))
        last = tl.maximum(last, tl.max(tl.where(weight > 0.0, token, 0), 0))
        running += tl.sum(weight, 0)
        seen += tl.sum(same, 0)
    # Rounding may leave the target beyond all of them.
    tl.store(tokens + index, tl.where(found < VOCABULARY, found, last).to(tl.int64))
