"""A served embedding model: the vectors of transformers, over REST."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from support.llm import byte_tokeniser
from support.llm_served import parameters, write_language_model
from support.server import Server, running

TEXTS = ["a fox", "a hen and a fox", "x"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Any]]:
    root = tmp_path_factory.mktemp("repository")
    config = parameters(precision="float32", threads=1, pooling="last", step_tokens=64)
    model = write_language_model(root, "vectors", config, max_position_embeddings=128)
    with running(root) as server:
        yield server, model


def embed(server: Server, *texts: str) -> tuple[int, Any]:
    body = {
        "inputs": [
            {"name": "text_input", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}
        ]
    }
    status, answer = server.post("/v2/models/vectors/infer", body)
    return status, json.loads(answer)


def expected(model: Any, text: str) -> np.ndarray:
    tokens = torch.tensor([byte_tokeniser().encode(text)])
    with torch.inference_mode():
        rows = model.model(tokens).last_hidden_state[0]
    return torch.nn.functional.normalize(rows[-1], dim=0).numpy()


def test_the_vectors_are_those_of_transformers(models: tuple[Server, Any]) -> None:
    server, model = models
    status, answer = embed(server, *TEXTS)
    assert status == 200, answer
    (output,) = answer["outputs"]
    assert output["name"] == "embedding"
    vectors = np.array(output["data"], np.float32).reshape(output["shape"])
    assert vectors.shape == (3, 64)
    for vector, text in zip(vectors, TEXTS, strict=True):
        assert np.abs(vector - expected(model, text)).max() < 1e-4


def test_what_cannot_be_embedded_is_refused_by_name(models: tuple[Server, Any]) -> None:
    server, _ = models
    status, answer = embed(server, "fine", "x" * 129)
    assert status == 400
    assert "text 1 has 129 tokens" in answer["error"]
    assert embed(server, "")[0] == 400


def test_its_config_says_what_it_takes_and_gives(models: tuple[Server, Any]) -> None:
    server, _ = models
    config = json.loads(server.get("/v2/models/vectors/config")[1])
    assert [(one["name"], one["dims"]) for one in config["input"]] == [("text_input", [-1])]
    assert [(one["name"], one["dims"]) for one in config["output"]] == [("embedding", [-1, 64])]
    assert not config["model_transaction_policy"]["decoupled"]
