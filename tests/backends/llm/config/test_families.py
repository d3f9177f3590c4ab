"""Every family's logits equal those of transformers, however the tokens are cut into passes."""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from backends.llm.model.decoder import Decoder
from backends.llm.span import Span
from support.llm import VARIANTS, load_decoder, logits, make_checkpoint, prompt

LENGTH = 75
CLOSE = {"atol": 1e-4, "rtol": 0.0}
FIRST, SECOND = range(8), range(8, 16)


class Pair(NamedTuple):
    decoder: Decoder
    model: Any

    def wanted(self, tokens: tuple[int, ...]) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = self.model(torch.tensor([tokens])).logits[0]
        return found


@pytest.fixture(scope="module", params=VARIANTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    model = make_checkpoint(request.param, folder)
    return Pair(load_decoder(folder), model)


def test_a_whole_prompt_in_one_pass(pair: Pair) -> None:
    tokens = prompt(1, LENGTH)
    found = logits(pair.decoder, Span(tokens, 0, FIRST, LENGTH))
    torch.testing.assert_close(found, pair.wanted(tokens), **CLOSE)


def test_a_prompt_in_chunks(pair: Pair) -> None:
    tokens = prompt(2, LENGTH)
    cuts = [0, 5, 37, 38, 70, LENGTH]
    found = [
        logits(pair.decoder, Span(tokens[start:end], start, FIRST, end - start))
        for start, end in pairwise(cuts)
    ]
    torch.testing.assert_close(torch.cat(found), pair.wanted(tokens), **CLOSE)


def test_token_by_token(pair: Pair) -> None:
    tokens = prompt(3, LENGTH)
    found = [logits(pair.decoder, Span(tokens[i : i + 1], i, FIRST, 1)) for i in range(LENGTH)]
    torch.testing.assert_close(torch.cat(found), pair.wanted(tokens), **CLOSE)


def test_decoding_beside_prompts_of_others(pair: Pair) -> None:
    ours, theirs, third = prompt(4, LENGTH), prompt(5, 40), prompt(6, 36)
    logits(pair.decoder, Span(ours[:-1], 0, FIRST, 0), Span(theirs[:-1], 0, SECOND, 0))
    found = logits(
        pair.decoder,
        Span(ours[-1:], LENGTH - 1, FIRST, 1),
        Span(third, 0, range(20, 23), 1),
        Span(theirs[-1:], 39, SECOND, 1),
    )
    wanted = torch.stack([pair.wanted(tokens)[-1] for tokens in (ours, third, theirs)])
    torch.testing.assert_close(found, wanted, **CLOSE)


def test_starting_from_blocks_another_sequence_has_computed(pair: Pair) -> None:
    shared, tail = prompt(7, 32), prompt(8, 30)
    logits(pair.decoder, Span((*shared, *prompt(9, 10)), 0, FIRST, 0))
    found = logits(pair.decoder, Span(tail, 32, (0, 1, *range(40, 46)), 30))
    torch.testing.assert_close(found, pair.wanted((*shared, *tail))[32:], **CLOSE)
