"""The rule by which tokens are chosen, by our kernel and without it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

from backends.llm.errors import NoKernels
from backends.llm.kernels.library import kernels
from backends.llm.sampling.params import SamplingParams
from backends.llm.sampling.select_tokens import Pick, choose_pick, pick_by_kernel, pick_plainly


@cache
def has_kernels() -> bool:
    try:
        kernels()
    except NoKernels:
        return False
    return True


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads cost more than they gain where rows are short."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=[pick_by_kernel, pick_plainly], ids=["kernel", "plain"])
def pick(request: pytest.FixtureRequest) -> Pick:
    if request.param is pick_by_kernel and not has_kernels():
        pytest.skip("the kernels cannot be had here")
    chosen: Pick = request.param
    return chosen


@dataclass(frozen=True)
class Kept:
    """What may come of a row, by the rule itself: ids in order, and their running sums."""

    ids: Tensor
    sums: Tensor

    def share_of(self, token: int) -> tuple[float, float]:
        """From where to where a number leads to a token; nowhere for one that is cut off."""
        place = int(torch.searchsorted(self.ids, token))
        if place == len(self.ids) or int(self.ids[place]) != token:
            return 2.0, 2.0
        total = self.sums[-1].item()
        return (self.sums[place - 1].item() if place else 0.0) / total, self.sums[
            place
        ].item() / total


def kept(logits: Tensor, params: SamplingParams) -> Kept:
    order = logits.sort(descending=True, stable=True).indices
    weights = ((logits - logits.amax()).double() / params.temperature).exp()
    if params.top_k:
        order = order[: params.top_k]
    order = order[weights[order] >= params.min_p]
    order = order[weights[order] > 0]
    if params.top_p < 1:
        before = weights[order].cumsum(0) - weights[order]
        order = order[before < params.top_p * weights[order].sum()]
    ids = order.sort().values
    return Kept(ids, weights[ids].cumsum(0))


def row_of(kind: str, vocabulary: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(vocabulary, generator=generator)
    mixed = torch.randperm(vocabulary, generator=generator)
    rows = {
        "flat": noise * 0.5,
        "usual": noise * 2.5,
        "peaked": noise + 20.0 * (mixed < 10),
        "coarse": (noise * 2).round(),
        "equal": torch.zeros(vocabulary),
        "even": torch.linspace(-0.3, 0.4, vocabulary)[mixed],
        "outliers": noise - 1e4 * (mixed < 5) + 9.0 * (mixed > vocabulary - 3),
        "masked": noise.masked_fill(mixed % 8 > 0, -torch.inf),
        "one": torch.full((vocabulary,), -torch.inf).index_fill(0, mixed[:1], 3.0),
        "huge": noise * 1e37,
        "tiny": noise * 1e-20,
    }
    return rows[kind]


KINDS = [
    "flat", "usual", "peaked", "coarse", "equal", "even", "outliers", "masked", "one", "huge",
    "tiny",
]  # fmt: skip
MIXES = [
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.95),
    SamplingParams(temperature=1.3, top_p=0.3),
    SamplingParams(top_p=1e-6),
    SamplingParams(top_p=0.999),
    SamplingParams(top_k=1),
    SamplingParams(top_k=50),
    SamplingParams(top_k=1000, top_p=0.9),
    SamplingParams(top_k=9000),
    SamplingParams(top_k=1 << 31, top_p=0.5),
    SamplingParams(min_p=0.05),
    SamplingParams(min_p=1.0),
    SamplingParams(temperature=0.7, min_p=0.01, top_p=0.9),
    SamplingParams(temperature=0.7, min_p=0.2, top_k=20, top_p=0.7),
    SamplingParams(temperature=100.0, top_p=0.8),
    SamplingParams(temperature=1e-3),
    SamplingParams(temperature=1e-300, top_p=0.9),
]
NUMBERS = [*((index + 0.5) / 8 for index in range(8)), 0.0, 1 - 2.0**-53]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocabulary", [1, 5, 128, 1000, 20_011])
def test_a_number_leads_to_the_token_in_whose_share_it_lies(
    pick: Pick, kind: str, vocabulary: int
) -> None:
    row = row_of(kind, vocabulary)
    rows = row.repeat(len(NUMBERS), 1)
    for params in MIXES:
        wanted = kept(row, params)
        for number, token in zip(NUMBERS, pick(rows, [params] * len(rows), NUMBERS), strict=True):
            start, end = wanted.share_of(token)
            assert start - 1e-6 <= number <= end + 1e-6, (params, number, token)


def test_tokens_come_up_as_often_as_they_are_likely(pick: Pick) -> None:
    row = row_of("usual", 300)
    params = SamplingParams(temperature=1.5, top_k=200, min_p=0.001, top_p=0.97)
    count = 5000
    numbers = [(index + 0.5) / count for index in range(count)]
    found = torch.tensor(pick(row.expand(count, -1), [params] * count, numbers)).bincount(
        minlength=300
    )
    wanted = kept(row, params)
    shares = torch.zeros(300, dtype=torch.float64)
    shares[wanted.ids] = wanted.sums.diff(prepend=torch.zeros(1)) / wanted.sums[-1]
    assert (found / count - shares).abs().max() <= 1.5 / count
    assert torch.equal(found > 0, shares > 0.5 / count)


@pytest.mark.parametrize("vocabulary", [300, 5000, 50_000])
def test_of_equals_those_with_lower_ids_stay(pick: Pick, vocabulary: int) -> None:
    row = torch.zeros(vocabulary)
    row[vocabulary // 2 :] = 1.0
    middle = vocabulary // 2
    for params, last in [
        (SamplingParams(top_k=7), middle + 6),
        (SamplingParams(temperature=0.01, top_p=0.25), middle + -(-vocabulary // 8) - 1),
        (SamplingParams(top_k=middle + 3), vocabulary - 1),
    ]:
        low, high = pick(row.repeat(2, 1), [params] * 2, [0.0, 1 - 2.0**-53])
        assert (low, high) == (0 if params.top_k > middle else middle, last)
    everything = SamplingParams(top_k=middle + 3)
    numbers = [index / 1000 for index in range(1000)]
    found = pick(row.expand(1000, -1), [everything] * 1000, numbers) if vocabulary == 300 else []
    assert {token for token in found if token < middle} <= {0, 1, 2}


def test_temperature_zero_takes_the_first_of_the_largest(pick: Pick) -> None:
    rows = torch.stack([row_of(kind, 3000) for kind in KINDS])
    wanted = rows.argmax(1).tolist()
    greedy = SamplingParams(temperature=0.0)
    assert pick(rows, [greedy] * len(rows), [0.5] * len(rows)) == wanted
    nearly = SamplingParams(temperature=1e-300, top_k=1)
    assert pick(rows, [nearly] * len(rows), [0.5] * len(rows)) == wanted


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_row_that_is_not_numbers_is_told(pick: Pick, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_p=0.9)
    rows = torch.zeros(6, 700)
    rows[0, 650] = torch.nan
    rows[1, 3] = torch.inf
    rows[2] = -torch.inf
    rows[3, 600] = -torch.nan
    rows[4, :699] = -torch.inf
    found = pick(rows, [params] * 6, [0.5] * 6)
    assert found[:4] == [-1] * 4
    assert found[4] == 699
    assert found[5] >= 0


def test_a_rows_token_does_not_depend_on_others_nor_on_threads(pick: Pick) -> None:
    rows = torch.stack([row_of(KINDS[index % 8], 6000, index) for index in range(32)])
    params = [MIXES[index % len(MIXES)] for index in range(32)]
    numbers = [(index + 0.5) / 32 for index in range(32)]
    before = rows.clone()
    together = pick(rows, params, numbers)
    assert torch.equal(rows, before)
    alone = [
        pick(rows[index : index + 1], params[index : index + 1], numbers[index : index + 1])[0]
        for index in range(32)
    ]
    assert together == alone
    torch.set_num_threads(3)
    assert pick(rows, params, numbers) == together


@pytest.mark.skipif(not has_kernels(), reason="the kernels cannot be had here")
def test_the_kernel_chooses_as_plain_code_does() -> None:
    draws = differing = 0
    for seed, kind in enumerate(KINDS):
        rows = torch.stack([row_of(kind, 9000, seed * 10 + index) for index in range(10)])
        generator = torch.Generator().manual_seed(seed)
        for params in MIXES:
            numbers = torch.rand(10, dtype=torch.float64, generator=generator).tolist()
            fast = pick_by_kernel(rows, [params] * 10, numbers)
            plain = pick_plainly(rows, [params] * 10, numbers)
            draws += 10
            differing += sum(one != other for one, other in zip(fast, plain, strict=True))
    assert draws > 1500
    assert differing < draws / 1000


def test_plain_code_chooses_where_kernels_are_not_wanted() -> None:
    assert choose_pick(compiled=False) is pick_plainly
    assert choose_pick() is (pick_by_kernel if has_kernels() else pick_plainly)
