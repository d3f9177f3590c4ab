"""Embeddings with the stock client, from a tiny encoder behind a whole server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openai
import pytest
from openai import OpenAI

from support.embedding import make_encoder, rows_of, say_pooling
from support.llm import byte_tokeniser, save_tokeniser
from support.openai import CONFIG, client, serving
from support.server import Server

WORDS = ["fox", "hedgehog", "f"]


class Embedding(NamedTuple):
    server: Server
    ai: OpenAI
    model: Any


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedding]:
    repository: Path = tmp_path_factory.mktemp("embedding")
    folder = repository / "vectors" / "1"
    folder.mkdir(parents=True)
    model = make_encoder("bert", folder)
    say_pooling(folder, "mean_tokens")
    save_tokeniser(folder)
    (repository / "vectors" / "config.pbtxt").write_text(CONFIG)
    with serving(repository) as server, client(server) as ai:
        yield Embedding(server, ai, model)


def vectors(ai: OpenAI, given: Any, **settings: Any) -> list[Any]:
    answer = ai.embeddings.create(model="vectors", input=given, **settings)
    assert [row.index for row in answer.data] == list(range(len(answer.data)))
    return [np.array(row.embedding, np.float32) for row in answer.data]


def test_a_vector_is_what_transformers_gives(one: Embedding) -> None:
    (found,) = vectors(one.ai, "fox", encoding_format="float")
    rows = rows_of(one.model, tuple(byte_tokeniser().encode("fox"))).mean(0)
    expected = (rows / rows.norm()).detach().numpy()
    assert np.abs(found - expected).max() < 1e-4


def test_both_encodings_have_the_same_numbers(one: Embedding) -> None:
    plain = vectors(one.ai, WORDS, encoding_format="float")
    packed = vectors(one.ai, WORDS)  # the client asks for base64 by itself
    assert all(np.array_equal(a, b) for a, b in zip(plain, packed, strict=True))
    answer = one.ai.embeddings.create(model="vectors", input="fox", encoding_format="base64")
    assert isinstance(answer.data[0].embedding, str)


def test_several_inputs_are_answered_in_order_and_tokens_are_inputs(one: Embedding) -> None:
    together = vectors(one.ai, WORDS)
    alone = [vectors(one.ai, word)[0] for word in WORDS]
    tokens = vectors(one.ai, [byte_tokeniser().encode(word) for word in WORDS])
    for found in (alone, tokens):
        assert all(np.abs(a - b).max() < 1e-5 for a, b in zip(together, found, strict=True))
    answer = one.ai.embeddings.create(model="vectors", input=WORDS)
    assert (answer.object, answer.model) == ("list", "vectors")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(map(len, WORDS))


def test_a_model_that_embeds_is_listed_and_generates_no_text(one: Embedding) -> None:
    assert [model.id for model in one.ai.models.list()] == ["vectors"]
    with pytest.raises(openai.BadRequestError) as caught:
        one.ai.completions.create(model="vectors", prompt="fox")
    assert (caught.value.code, caught.value.param) == ("model_not_supported", "model")


def test_an_input_that_is_too_long_is_refused_and_the_longest_is_not(one: Embedding) -> None:
    longest = one.ai.models.retrieve("vectors").model_extra or {}
    assert len(vectors(one.ai, "x" * longest["max_model_len"])) == 1
    status, body = one.server.post(
        "/v1/embeddings", {"model": "vectors", "input": "x" * (longest["max_model_len"] + 1)}
    )
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (400, "context_length_exceeded")
