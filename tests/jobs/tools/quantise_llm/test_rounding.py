"""How weights become whole numbers, and how these are stored."""

import pytest
import torch
from torch import Tensor

from backends.llm.ops.quantise import quantise_int4, restore
from jobs.tools.quantise_llm.awq import best_factors
from jobs.tools.quantise_llm.gptq import NoInverseError, gptq
from jobs.tools.quantise_llm.moments import InputMoments
from jobs.tools.quantise_llm.packing import packed
from jobs.tools.quantise_llm.rounding import Rounded, round_to_nearest

DRAW = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(48, 256, generator=DRAW)
MIXING = torch.randn(64, 256, generator=DRAW) / 8
MIXING *= torch.logspace(-1, 1, 256)[torch.randperm(256, generator=DRAW)]
ROWS = torch.randn(2000, 64, generator=DRAW) @ MIXING
ROWS += 0.1 * ROWS.abs().mean(0) * torch.randn(2000, 256, generator=DRAW)
"""Inputs that depend on each other, some a hundred times as large as others."""


def moments() -> InputMoments:
    found = InputMoments(256)
    for part in ROWS.split(300):
        found.add(part)
    return found


def lost(rounded: Rounded) -> float:
    """Of the outputs for ROWS, relative."""
    wanted = ROWS @ WEIGHT.t()
    return float((ROWS @ rounded.restored().t() - wanted).norm() / wanted.norm())


def test_moments_are_those_of_all_rows() -> None:
    found = moments()
    torch.testing.assert_close(found.square, ROWS.t() @ ROWS / len(ROWS), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.size, ROWS.abs().mean(0), rtol=1e-3, atol=1e-3)


def test_rounding_to_nearest_loses_what_the_engine_loses() -> None:
    ours = (round_to_nearest(WEIGHT, 4).restored() - WEIGHT).norm()
    engine = (restore(quantise_int4(WEIGHT)) - WEIGHT).norm()
    assert float(ours) == pytest.approx(float(engine), rel=0.01)


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_loses_less_of_the_outputs_than_rounding(bits: int, act_order: bool) -> None:
    rounded = gptq(WEIGHT, moments().square, bits, damping=0.01, act_order=act_order)
    assert lost(rounded) < 0.8 * lost(round_to_nearest(WEIGHT, bits))
    low, high = (-8, 7) if bits == 4 else (-127, 127)
    assert low <= int(rounded.values.min())
    assert int(rounded.values.max()) <= high


def test_gptq_equals_rounding_where_inputs_do_not_depend_on_each_other() -> None:
    rounded = gptq(WEIGHT, torch.eye(256), 4, damping=1e-6, act_order=False)
    assert torch.equal(rounded.values, round_to_nearest(WEIGHT, 4).values)


def test_gptq_sets_weights_of_inputs_that_never_come_to_zero() -> None:
    square = moments().square
    square[7], square[:, 7] = 0.0, 0.0
    rounded = gptq(WEIGHT, square, 4, damping=0.01, act_order=True)
    assert not int(rounded.values[:, 7].count_nonzero())


def test_gptq_refuses_moments_that_are_no_numbers() -> None:
    with pytest.raises(NoInverseError):
        gptq(WEIGHT, torch.full((256, 256), torch.nan), 4, damping=0.01, act_order=False)


def test_awq_finds_factors_with_less_error() -> None:
    power, factors = best_factors([WEIGHT], moments(), 4)
    assert power > 0
    scaled = round_to_nearest(WEIGHT * factors, 4)
    wanted = ROWS @ WEIGHT.t()
    error = float((ROWS @ (scaled.restored() / factors).t() - wanted).norm() / wanted.norm())
    assert error < lost(round_to_nearest(WEIGHT, 4))


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_words_hold_the_whole_numbers_lowest_bits_first(bits: int) -> None:
    rounded = round_to_nearest(WEIGHT, bits)
    words = packed("m", rounded, bits)["m.weight_packed"]
    assert words.dtype == torch.int32
    assert torch.equal(_unpacked(words, bits), rounded.values.int())


def _unpacked(words: Tensor, bits: int) -> Tensor:
    per_word, mask = 32 // bits, (1 << bits) - 1
    parts = [(words >> (bits * at)) & mask for at in range(per_word)]
    return torch.stack(parts, 2).flatten(1) - (1 << (bits - 1))
