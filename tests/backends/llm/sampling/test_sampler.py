"""Choosing tokens: what each parameter does, alone and beside others."""

from collections import Counter

import pytest
import torch
from msgspec.structs import replace

from backends.llm.sampling.largest import largest, likeliest
from backends.llm.sampling.params import SamplingParams
from backends.llm.sampling.sampler import SamplingRow, sample, score

GREEDY = SamplingParams(temperature=0.0)
ROW = [0.0, 1.0, 2.0, 3.0, 4.0]


def draw(params: SamplingParams, **facts: object) -> SamplingRow:
    return SamplingRow(**({"params": params, "tokens": [0], "prompt": 1, "seed": 7} | facts))  # type: ignore[arg-type]


def tokens(rows: list[list[float]], *draws: SamplingRow) -> list[int]:
    found = sample(torch.tensor(rows), draws)
    return [one.token for one in found if one.token is not None]


def chosen(params: SamplingParams, row: list[float], count: int = 500) -> Counter[int]:
    """What comes up at so many positions."""
    draws = [draw(params, tokens=range(position)) for position in range(count)]
    return Counter(tokens([row] * count, *draws))


def test_temperature_zero_takes_the_likeliest() -> None:
    assert tokens([ROW], draw(GREEDY)) == [4]


@pytest.mark.parametrize("vocabulary", [1, 7, 127, 128, 129, 5000])
def test_the_likeliest_is_the_first_of_the_largest(vocabulary: int) -> None:
    rows = torch.randn(9, vocabulary, generator=torch.Generator().manual_seed(1)).round()
    assert torch.equal(likeliest(rows), rows.argmax(1))


@pytest.mark.parametrize("vocabulary", [1, 7, 128, 5000])
@pytest.mark.parametrize("count", [1, 5, 60, 4000])
def test_the_largest_are_those_of_a_stable_sort(vocabulary: int, count: int) -> None:
    row = torch.randn(vocabulary, generator=torch.Generator().manual_seed(count)).mul(5).round()
    wanted = row.sort(descending=True, stable=True).indices[:count].sort().values
    assert largest(row.numpy(), count).tolist() == wanted.tolist()


def test_a_score_is_what_the_whole_softmax_says() -> None:
    row = torch.randn(3000, generator=torch.Generator().manual_seed(3)) * 4
    logprobs = row.double().log_softmax(0)
    values, places = logprobs.topk(7)
    found = score(row, 17, 7)
    assert found.logprob == pytest.approx(logprobs[17].item(), abs=1e-5)
    assert found.rank == int((logprobs > logprobs[17]).sum())
    assert [token for token, _ in found.likeliest] == places.tolist()
    assert [value for _, value in found.likeliest] == pytest.approx(values.tolist(), abs=1e-5)
    assert score(row, 17, 0).likeliest == ()


def test_tokens_come_up_as_often_as_they_are_likely() -> None:
    found = chosen(SamplingParams(temperature=2.0), ROW, 2000)
    wanted = (torch.tensor(ROW) / 2.0).softmax(0).tolist()
    for token, share in enumerate(wanted):
        assert found[token] / 2000 == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(top_k=2), {3, 4}),
        (SamplingParams(top_k=1), {4}),
        (SamplingParams(top_p=0.6), {4}),
        (SamplingParams(top_p=0.7), {3, 4}),
        (SamplingParams(min_p=0.1), {2, 3, 4}),
        (SamplingParams(min_p=0.1, top_k=2), {3, 4}),
        (SamplingParams(top_k=3, top_p=0.7), {3, 4}),
    ],
)
def test_only_what_is_not_cut_off_comes_up(params: SamplingParams, kept: set[int]) -> None:
    assert set(chosen(params, ROW)) == kept


def test_a_seed_gives_the_same_token_in_any_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 500, generator=generator).tolist()
    kinds = [GREEDY, SamplingParams(), SamplingParams(top_p=0.5), SamplingParams(top_k=9)]
    draws = [draw(kinds[i % 4], seed=i, tokens=range(i)) for i in range(6)]
    together = tokens(rows, *draws)
    alone = [tokens([row], one)[0] for row, one in zip(rows, draws, strict=True)]
    assert together == alone


def test_another_seed_or_position_gives_other_tokens() -> None:
    params = SamplingParams()
    row = [0.0] * 1000
    found = tokens([row] * 3, draw(params), draw(params, seed=8), draw(params, tokens=[0, 0]))
    assert len(set(found)) == 3


def test_a_repetition_penalty_counts_prompt_and_answer() -> None:
    params = replace(GREEDY, repetition_penalty=2.0)
    assert tokens([[-1.0, 3.0, 2.0]], draw(params, tokens=[1], prompt=1)) == [2]
    assert tokens([[-1.0, -1.5, -9.0]], draw(params, tokens=[0], prompt=1)) == [1]


def test_presence_and_frequency_count_the_answer_alone() -> None:
    present = replace(GREEDY, presence_penalty=1.5)
    assert tokens([[2.0, 3.0]], draw(present, tokens=[1], prompt=1)) == [1]
    assert tokens([[2.0, 3.0]], draw(present, tokens=[1, 1], prompt=1)) == [0]
    often = replace(GREEDY, frequency_penalty=0.4)
    assert tokens([[2.0, 3.0]], draw(often, tokens=[0, 1, 1], prompt=1)) == [1]
    assert tokens([[2.0, 3.0]], draw(often, tokens=[0, 1, 1, 1], prompt=1)) == [0]


def test_biases_bans_and_grammars_change_what_can_come() -> None:
    biased = replace(GREEDY, logit_bias=((0, 100.0),))
    assert tokens([ROW], draw(biased)) == [0]
    assert tokens([ROW], draw(GREEDY, banned=[4, 3])) == [2]
    allowed = torch.tensor([True, True, False, False, False])
    assert tokens([ROW], draw(GREEDY, allowed=allowed)) == [1]


def test_logprobs_are_those_of_the_model_before_anything_changes_them() -> None:
    params = SamplingParams(temperature=0.0, logit_bias=((0, 100.0),), logprobs=2)
    (found,) = sample(torch.tensor([ROW]), [draw(params)])
    assert found.scored is not None
    wanted = torch.tensor(ROW).log_softmax(0).tolist()
    assert found.token == 0
    assert found.scored.logprob == pytest.approx(wanted[0])
    assert found.scored.rank == 4
    assert [token for token, _ in found.scored.likeliest] == [4, 3]


def test_logits_that_are_not_numbers_fail_their_row_alone() -> None:
    found = sample(torch.tensor([[float("nan"), 1.0], [0.0, 1.0]]), [draw(GREEDY), draw(GREEDY)])
    assert [one.token for one in found] == [None, 1]


def test_a_score_has_as_many_alternatives_as_the_vocabulary_at_most() -> None:
    assert len(score(torch.tensor(ROW), 0, 50).likeliest) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_k": -1}, "top_k is -1"),
        ({"min_p": 2.0}, "min_p is 2"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0"),
        ({"logprobs": 101}, "logprobs is 101"),
        ({"logit_bias": ((3, 1e9),)}, "logit_bias of token 3"),
    ],
)
def test_a_senseless_parameter_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**changes)  # type: ignore[arg-type]


def test_a_ban_yields_where_a_grammar_leaves_nothing_else() -> None:
    one, two = (torch.tensor([index in kept for index in range(5)]) for kept in ([2], [1, 2]))
    draws = [draw(GREEDY, allowed=allowed, banned=[2]) for allowed in (one, two)]
    assert tokens([ROW, ROW], *draws) == [2, 1]
