"""Embeddings equal those of transformers, pooled as the checkpoint says; what is wrong is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from backends.llm.embedder import Embedder, open_embedder
from backends.llm.embedding_plan import read_embedding
from backends.llm.errors import BadCheckpoint, NoRoom
from backends.llm.load import LoadSettings
from backends.llm.model.pooling import Pooling, read_pooling
from backends.llm.ops.seam import Precision
from support.embedding import (
    DECODER_VARIANTS,
    ENCODER_VARIANTS,
    LONGEST,
    make_embedding_decoder,
    make_encoder,
    rows_of,
    say_pooling,
)
from support.llm import prompt

CLOSE = {"atol": 1e-4, "rtol": 0.0}
TEXTS = [prompt(seed, length) for seed, length in enumerate((7, 1, LONGEST, 30, 30, 2), start=1)]


def settings(precision: Precision = "float32", **changes: Any) -> LoadSettings:
    return LoadSettings(64 << 20, precision, step_tokens=48, **changes)


def wanted(model: Any, kind: str) -> torch.Tensor:
    rows = [rows_of(model, text) for text in TEXTS]
    pooled = {"mean": [one.mean(0) for one in rows], "cls": [one[0] for one in rows],
              "last": [one[-1] for one in rows]}[kind]  # fmt: skip
    return torch.stack(pooled)


def embed(embedder: Embedder, texts: Any = TEXTS) -> torch.Tensor:
    found = embedder.embed(texts)
    assert found.dtype == np.float32
    return torch.from_numpy(found)


@pytest.mark.parametrize("variant", ENCODER_VARIANTS)
def test_an_encoders_vectors_are_those_of_transformers(variant: str, tmp_path: Path) -> None:
    model = make_encoder(variant, tmp_path)
    say_pooling(tmp_path, "mean_tokens", normalise=False)
    found = embed(open_embedder(tmp_path, settings()))
    torch.testing.assert_close(found, wanted(model, "mean"), **CLOSE)


@pytest.mark.parametrize("variant", ["bert", "roberta", "distilbert"])
def test_an_encoder_saved_with_a_head_is_read_without_it(variant: str, tmp_path: Path) -> None:
    model = make_encoder(variant, tmp_path, head=True)
    found = embed(open_embedder(tmp_path, settings(), "cls"))
    torch.testing.assert_close(found, normalize(wanted(model, "cls")), **CLOSE)


@pytest.mark.parametrize("variant", DECODER_VARIANTS)
@pytest.mark.parametrize(("mode", "kind"), [("lasttoken", "last"), ("mean_tokens", "mean")])
def test_a_decoders_vectors_are_those_of_transformers(
    variant: str, mode: str, kind: str, tmp_path: Path
) -> None:
    model = make_embedding_decoder(variant, tmp_path)
    say_pooling(tmp_path, mode)
    found = embed(open_embedder(tmp_path, settings(context=LONGEST)))
    torch.testing.assert_close(found, normalize(wanted(model, kind)), **CLOSE)


@pytest.mark.parametrize(
    ("precision", "limit"), [("bfloat16", 0.9995), ("int8", 0.998), ("int4", 0.93)]
)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("variant", ["bert", "qwen3"])
def test_fewer_bits_point_the_same_way(
    variant: str, precision: Precision, limit: float, compiled: bool, tmp_path: Path
) -> None:
    make = make_encoder if variant == "bert" else make_embedding_decoder
    kind = "mean" if variant == "bert" else "last"
    exact = normalize(wanted(make(variant, tmp_path), kind))
    chosen = settings(precision, compiled=compiled, context=LONGEST)
    found = embed(open_embedder(tmp_path, chosen, kind))
    assert (found * exact).sum(1).min() > limit


@pytest.mark.parametrize("variant", ["bert", "qwen3"])
def test_a_text_is_embedded_alike_in_any_company(variant: str, tmp_path: Path) -> None:
    make = make_encoder if variant == "bert" else make_embedding_decoder
    make(variant, tmp_path)
    embedder = open_embedder(tmp_path, settings(context=LONGEST), "mean")
    alone = torch.cat([embed(embedder, [text]) for text in TEXTS])
    torch.testing.assert_close(embed(embedder), alone, atol=1e-6, rtol=0.0)


def test_passes_are_bounded_and_the_loop_may_breathe_between_them(tmp_path: Path) -> None:
    make_embedding_decoder("llama", tmp_path)
    embedder = open_embedder(tmp_path, settings(context=LONGEST), "last")
    assert sum(1 for _ in embedder.steps(TEXTS)) >= sum(map(len, TEXTS)) / 48


def test_no_texts_give_no_vectors(tmp_path: Path) -> None:
    make_encoder("bert", tmp_path)
    assert open_embedder(tmp_path, settings()).embed([]).shape == (0, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ((), "text 1 has no tokens"),
        ((5,) * (LONGEST + 1), f"text 1 has {LONGEST + 1} tokens; the model takes at most"),
        ((5, 160), "text 1 has a token that the model does not know; its tokens are 0 to 159"),
        ((5, -1), "text 1 has a token"),
    ],
)
def test_a_text_that_cannot_be_embedded_is_named(
    text: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    make_encoder("bert", tmp_path)
    with pytest.raises(ValueError, match=message):
        open_embedder(tmp_path, settings()).embed([(5, 6), text])


def test_a_decoder_without_modules_generates_and_an_encoder_takes_the_mean(tmp_path: Path) -> None:
    make_embedding_decoder("llama", tmp_path)
    assert read_embedding(tmp_path) is None
    asked = read_embedding(tmp_path, "last", 40)
    assert asked is not None
    assert (asked.pooling, asked.longest) == (Pooling("last"), 40)
    make_encoder("bert", tmp_path)
    encoder = read_embedding(tmp_path)
    assert encoder is not None
    assert (encoder.pooling, encoder.longest) == (Pooling("mean"), LONGEST)


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "lasttoken"])
@pytest.mark.parametrize("normalise", [True, False])
def test_pooling_is_read_from_the_modules(tmp_path: Path, mode: str, normalise: bool) -> None:
    say_pooling(tmp_path, mode, normalise=normalise)
    assert read_pooling(tmp_path) == Pooling(
        {"m": "mean", "c": "cls", "l": "last"}[mode[0]], normalise
    )  # type: ignore[arg-type]


MODULES = [{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}]


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({}, "must be a list"),
        ([3], "has a 'type' and a 'path'"),
        ([*MODULES, {"type": "a.Dense", "path": "2_Dense"}], "has a module 'Dense'; supported"),
        (MODULES[:1], "has no Pooling module"),
        ([{"type": "a.Pooling", "path": "../elsewhere"}], "it must be a folder"),
        ([{"type": "a.Pooling", "path": "2_Pooling"}], "there is no config.json"),
    ],
)
def test_modules_that_are_wrong_are_named(tmp_path: Path, modules: Any, message: str) -> None:
    say_pooling(tmp_path, "mean_tokens")
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(BadCheckpoint, match=message):
        read_pooling(tmp_path)


def test_a_pooling_that_is_not_supported_is_named(tmp_path: Path) -> None:
    say_pooling(tmp_path, "max_tokens")
    with pytest.raises(BadCheckpoint, match="pools by pooling_mode_max_tokens; supported is one"):
        read_pooling(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "'position_embedding_type' is"),
        ({"is_decoder": True}, "'is_decoder' is True; it must be false"),
        ({"hidden_act": "silu"}, "'hidden_act' is 'silu'; it must be one of gelu"),
        ({"num_attention_heads": 5}, "a multiple of the 5 attention heads"),
        ({"max_position_embeddings": 97}, "'embeddings.position_embeddings.weight' has shape"),
    ],
)
def test_an_encoders_config_that_is_wrong_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    make_encoder("bert", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(BadCheckpoint, match=message):
        open_embedder(tmp_path, settings())


def test_a_budget_that_is_too_small_is_refused_with_what_would_do(tmp_path: Path) -> None:
    make_encoder("bert", tmp_path)
    with pytest.raises(NoRoom, match="give at least 1 MiB"):
        open_embedder(tmp_path, LoadSettings(1000, "int8"))
