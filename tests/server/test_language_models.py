"""A served language model, asked by stock clients over REST and gRPC."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as grpc_client
from tritonclient.utils import InferenceServerException

from schedulers.llm.engine.tokeniser_thread import BRIEF
from support.llm_served import (
    GREEDY,
    asking,
    figure,
    generate,
    generated,
    parameters,
    streaming,
    write_language_model,
)
from support.server import Server, running

PROMPT = "Once upon a time there was a fox."
FLOAT = parameters(precision="float32", threads=1)
NARROW = parameters(precision="float32", threads=1, max_running=1, max_waiting=1, step_tokens=16)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Any]]:
    root = tmp_path_factory.mktemp("repository")
    model = write_language_model(root, "tiny", FLOAT)
    write_language_model(root, "narrow", NARROW)
    with running(root) as server:
        yield server, model


@pytest.fixture(scope="module")
def server(models: tuple[Server, Any]) -> Server:
    return models[0]


def test_greedy_text_is_that_of_transformers_and_follows_the_prompt(
    models: tuple[Server, Any],
) -> None:
    server, model = models
    expected = generated(model, PROMPT, 20)
    status, answer = generate(server, "tiny", PROMPT, max_tokens=20, **GREEDY)
    assert (status, answer["text_output"]) == (200, expected)
    _, whole = generate(
        server, "tiny", PROMPT, max_tokens=20, exclude_input_in_output=False, **GREEDY
    )
    assert whole["text_output"] == PROMPT + expected


def test_events_of_a_stream_add_up_to_the_answer(models: tuple[Server, Any]) -> None:
    server, model = models
    with streaming(server, "tiny", PROMPT, max_tokens=20, **GREEDY) as (response, events):
        pieces = [event["text_output"] for event in events]
    assert response.status == 200
    assert len(pieces) > 3
    assert "".join(pieces) == generated(model, PROMPT, 20)


async def streamed(server: Server, model: str = "tiny", **parameters: Any) -> list[str]:
    """The texts of a ModelStreamInfer, with sampling parameters as JSON text."""
    inputs = []
    sampling = json.dumps({"max_tokens": 20, "temperature": "0", "ignore_eos": True, **parameters})
    for name, kind, value in (
        ("text_input", "BYTES", PROMPT.encode()),
        ("stream", "BOOL", True),
        ("sampling_parameters", "BYTES", sampling.encode()),
    ):
        inputs.append(grpc_client.InferInput(name, [1], kind))
        inputs[-1].set_data_from_numpy(np.array([value], object if kind == "BYTES" else bool))

    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": model, "inputs": inputs}

    texts = []
    async with grpc_client.InferenceServerClient(server.grpc) as client:
        async for result, error in client.stream_infer(requests()):
            if error is not None:
                raise error
            texts.append(result.as_numpy("text_output")[0].decode())
    return texts


def test_tritonclient_streams_an_answer_over_grpc(models: tuple[Server, Any]) -> None:
    server, model = models
    texts = asyncio.run(streamed(server))
    assert len(texts) > 3
    assert "".join(texts) == generated(model, PROMPT, 20)


def test_a_seed_gives_the_same_text_again(server: Server) -> None:
    asked = {"max_tokens": 20, "temperature": 1.5, "seed": 7, "ignore_eos": True}
    texts = [generate(server, "tiny", PROMPT, **asked)[1]["text_output"] for _ in range(2)]
    assert texts[0] == texts[1]
    assert generate(server, "tiny", PROMPT, **asked | {"seed": 8})[1]["text_output"] != texts[0]


def test_many_at_once_are_each_answered_as_if_alone(models: tuple[Server, Any]) -> None:
    server, model = models
    prompts = [f"{PROMPT} Number {number}" for number in range(6)]

    async def all_of_them() -> list[tuple[int, dict[str, Any]]]:
        asks = (
            asyncio.to_thread(generate, server, "tiny", one, max_tokens=12, **GREEDY)
            for one in prompts
        )
        return await asyncio.gather(*asks)

    for prompt, (status, answer) in zip(prompts, asyncio.run(all_of_them()), strict=True):
        assert (status, answer["text_output"]) == (200, generated(model, prompt, 12))


def test_a_long_text_is_tokenised_beside_the_steps(models: tuple[Server, Any]) -> None:
    server, model = models
    prompt = "fox and hen " * 360
    assert len(prompt) > BRIEF
    status, answer = generate(server, "tiny", prompt, max_tokens=4, **GREEDY)
    assert (status, answer["text_output"]) == (200, generated(model, prompt, 4))


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        ({"max_tokens": "many"}, "max_tokens is 'many'; it must be a number"),
        ({"temperature": -1}, "temperature is -1.0; it must be from 0 to 100"),
        ({"top_p": 0}, "top_p is 0.0; it must be above 0"),
        ({"min_tokens": -2}, "min_tokens is -2"),
        ({"max_tokenz": 3}, "'max_tokens' may be meant"),
        ({"sampling_parameters": "{"}, "sampling_parameters is no JSON"),
        ({"sampling_parameters": f'{{"seed": {1 << 64}}}'}, "must be a whole number of 64 bits"),
        ({"sampling_parameters": '{"stop_token_ids": [1e30]}'}, "a whole number of 64 bits"),
        ({"sampling_parameters": '{"beams": 2}'}, "sampling_parameters has no 'beams'"),
        ({"text_input": "x" * 9000}, "the prompt has 9000 tokens; a context of 8192"),
        ({"text_input": ""}, "the prompt is empty"),
        ({"stream": True, "exclude_input_in_output": False}, "is not allowed"),
        ({"sampling_parameters": '{"stop": [""]}'}, "stop is ['']"),
        ({"sampling_parameters": '{"stop_token_ids": [999]}'}, "stop_ids has the token 999"),
        ({"guided_regex": "("}, "regex"),
        ({"guided_regex": "a", "guided_json": "{}"}, "not several"),
    ],
)
def test_a_senseless_request_is_told_what_is_wrong_with_it(
    server: Server, asked: dict[str, Any], complaint: str
) -> None:
    asked = dict(asked)
    status, answer = generate(server, "tiny", asked.pop("text_input", PROMPT), **asked)
    assert status == 400, answer
    assert complaint in answer["error"]


def test_over_grpc_a_senseless_request_is_an_invalid_argument(server: Server) -> None:
    with pytest.raises(InferenceServerException, match="top_k"):
        asyncio.run(streamed(server, top_k="none"))


def test_a_grammar_is_followed(server: Server) -> None:
    status, answer = generate(server, "tiny", PROMPT, max_tokens=20, guided_regex="(yes|no)")
    assert status == 200, answer
    assert answer["text_output"] in ("yes", "no")


def test_a_reader_who_hangs_up_frees_the_blocks_of_its_answer(server: Server) -> None:
    with streaming(server, "tiny", PROMPT, max_tokens=4000, **GREEDY) as (_, events):
        next(events)
        server.wait_for(lambda: figure(server, "running", "tiny") == 1, "the answer to run")
    server.wait_for(lambda: figure(server, "blocks_in_use", "tiny") == 0, "its blocks to be free")
    assert figure(server, "running", "tiny") == 0


def test_what_is_too_much_is_answered_429_with_a_time_to_come_back(server: Server) -> None:
    long = {"max_tokens": 3000, **GREEDY}
    with streaming(server, "narrow", PROMPT, **long), asking(server, "narrow", PROMPT, **long):
        server.wait_for(lambda: figure(server, "waiting", "narrow") == 1, "the second to wait")
        with streaming(server, "narrow", PROMPT, **long) as (third, _):
            assert third.status == 429
            assert int(third.headers["Retry-After"]) >= 1
        with pytest.raises(InferenceServerException, match="answers are running"):
            asyncio.run(streamed(server, "narrow"))
    server.wait_for(lambda: figure(server, "running", "narrow") == 0, "both to be gone")


def test_a_deadline_ends_an_answer(server: Server) -> None:
    status, answer = generate(server, "tiny", PROMPT, max_tokens=4000, timeout=300_000, **GREEDY)
    assert status == 503
    assert "timeout expired" in answer["error"]


def test_statistics_and_metrics_count_requests_and_tokens(server: Server) -> None:
    before = figure(server, "generated_tokens", "tiny")
    generate(server, "tiny", PROMPT, max_tokens=7, **GREEDY)
    server.wait_for(
        lambda: figure(server, "generated_tokens", "tiny") >= before + 7, "the tokens to count"
    )
    _, body = server.get("/v2/models/tiny/stats")
    stats = json.loads(body)["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] >= 1
    assert stats["execution_count"] > stats["inference_count"] > 0
    assert figure(server, "time_to_first_token_seconds_count", "tiny") > 0
    assert figure(server, "inter_token_seconds_count", "tiny") > 6


def test_the_gateway_loads_neither_torch_nor_a_tokeniser(server: Server) -> None:
    maps = Path(f"/proc/{server.pid}/maps").read_text()
    assert "libtorch" not in maps
    assert "tokenizers" not in maps  # building one holds up every request for a second
