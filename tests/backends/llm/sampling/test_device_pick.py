"""Tokens chosen on a device: those that are chosen on the CPU, by the same rule."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from backends.llm.sampling.params import SamplingParams
from backends.llm.sampling.sampler import SamplingRow, sample, sample_on
from backends.llm.sampling.select_tokens import Pick, pick_by, pick_plainly
from support.triton import DEVICE, ON_GPU

pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = pytest.mark.gpu if ON_GPU else pytest.mark.slow
VOCABULARY = 5_000


def on_device() -> Pick:
    from backends.llm.kernels.choose_tokens import choose

    return partial(pick_by, choose)


def noise(rows: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, VOCABULARY, generator=generator) * spread


WISHES = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature alone": SamplingParams(temperature=0.8),
    "top-k": SamplingParams(temperature=1.2, top_k=7),
    "top-p": SamplingParams(temperature=0.9, top_p=0.8),
    "min-p": SamplingParams(temperature=1.5, min_p=0.02),
    "all of them": SamplingParams(temperature=1.1, top_k=50, top_p=0.9, min_p=0.01),
    "next to nothing": SamplingParams(temperature=1e-6),
    "top-k of one": SamplingParams(temperature=1.0, top_k=1),
    "more than there are": SamplingParams(temperature=1.0, top_k=VOCABULARY + 1),
    "a share next to nothing": SamplingParams(temperature=1.0, top_p=1e-9),
}


@pytest.mark.parametrize("wish", WISHES)
def test_the_token_is_that_of_plain_torch(wish: str) -> None:
    logits, uniforms = noise(5), [0.0, 0.3, 0.6, 0.9, 1 - 2**-53]
    params = [WISHES[wish]] * 5

    found = on_device()(logits.to(DEVICE), params, uniforms)

    assert found == pick_plainly(logits, params, uniforms)


def test_rows_of_one_step_may_want_unlike_things() -> None:
    logits, params = noise(len(WISHES), seed=1), list(WISHES.values())
    uniforms = [0.1 + 0.08 * row for row in range(len(params))]

    found = on_device()(logits.to(DEVICE), params, uniforms)

    assert found == pick_plainly(logits, params, uniforms)


@pytest.mark.parametrize("wish", ["top-k", "top-p", "all of them", "temperature alone"])
def test_of_equal_logits_those_with_the_lowest_ids_stay(wish: str) -> None:
    logits = noise(4, seed=2, spread=1.0).mul_(2).round_().div_(2)
    uniforms = [0.05, 0.4, 0.7, 0.99]
    params = [WISHES[wish]] * 4

    found = on_device()(logits.to(DEVICE), params, uniforms)

    assert found == pick_plainly(logits, params, uniforms)


@pytest.mark.parametrize("wish", ["greedy", "top-p"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_row_that_is_not_numbers_has_no_token(wish: str, number: float) -> None:
    logits = noise(3)
    logits[1, 77] = number
    params = [WISHES[wish]] * 3

    found = on_device()(logits.to(DEVICE), params, [0.5] * 3)

    assert [token < 0 for token in found] == [False, True, False]


def test_tokens_that_cannot_come_are_not_chosen() -> None:
    logits = torch.full((2, VOCABULARY), -torch.inf)
    logits[0, 4_999], logits[1, [5, 4_100]] = 1.0, 2.0
    params = [SamplingParams(temperature=1.0, top_p=0.9), SamplingParams(temperature=1.0)]

    assert on_device()(logits.to(DEVICE), params, [0.7, 0.7]) == [4_999, 4_100]


def test_rows_of_which_more_is_wanted_come_to_the_cpu() -> None:
    plain = SamplingRow(WISHES["top-p"], (1, 2), 1, seed=3)
    scored = SamplingRow(SamplingParams(temperature=0.0, logprobs=2), (1, 2), 1, seed=4)
    banned = SamplingRow(WISHES["greedy"], (1, 2), 1, seed=5, banned=(6,))
    logits = noise(4, seed=3)
    logits[2, 6] = 99.0
    draws = [plain, scored, banned, plain]

    found = sample_on(logits.to(DEVICE), draws, pick_plainly, on_device())

    assert found == sample(logits.clone(), draws)


def test_draws_come_as_often_as_their_weights_say() -> None:
    logits = torch.full((1, VOCABULARY), -torch.inf)
    logits[0, [10, 4_100, 4_900]] = torch.tensor([0.1, 0.2, 0.7]).log()
    count = 40
    uniforms = [(n + 0.5) / count for n in range(count)]
    params = [SamplingParams(temperature=1.0)] * count

    found = on_device()(logits.expand(count, -1).contiguous().to(DEVICE), params, uniforms)

    tokens, counts = np.unique(found, return_counts=True)
    assert tokens.tolist() == [10, 4_100, 4_900]
    assert np.abs(counts / count - [0.1, 0.2, 0.7]).max() < 0.03
