"""What is wrong with a checkpoint is said with the file and the field, and nothing is executed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends.llm.config.families import FAMILIES, read_config
from backends.llm.errors import BadCheckpoint, NoRoom, UnknownFamily
from backends.llm.load import LoadSettings, load
from backends.llm.span import Span
from backends.llm.tokens.tokeniser import read_tokeniser
from support.llm import (
    CONTEXT,
    SMALL,
    byte_tokeniser,
    load_decoder,
    logits,
    make_checkpoint,
    prompt,
    save_tokeniser,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_checkpoint("llama", tmp_path)
    save_tokeniser(tmp_path)
    return tmp_path


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    written = json.loads(path.read_text())
    for name, value in changes.items():
        if value is ...:
            written.pop(name, None)
        else:
            written[name] = value
    path.write_text(json.dumps(written))


def change_tensors(folder: Path, **changes: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in changes.items():
        full = name.replace("__", ".")
        tensors.pop(full)
        if tensor is not None:
            tensors[full] = tensor
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": ...}, "config.json lacks 'hidden_size'"),
        ({"hidden_size": -3}, "'hidden_size' is -3; it must be a positive whole number"),
        ({"hidden_size": "64"}, "'hidden_size' is '64'"),
        ({"num_hidden_layers": True}, "'num_hidden_layers' is True"),
        ({"num_key_value_heads": 3}, "a divisor of num_attention_heads = 4"),
        ({"head_dim": 15}, "'head_dim' is 15; it must be even"),
        ({"hidden_act": "relu"}, "the activation is 'relu'; it must be one of silu"),
        ({"dtype": "float8"}, "'dtype' is 'float8'; it must be one of float32"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_type is 'dynamic'; supported are"),
        ({"rope_parameters": {"rope_type": "linear"}}, "lacks 'factor'"),
        ({"eos_token_id": "two"}, "'eos_token_id' is 'two'"),
        ({"num_hidden_layers": 10**9}, "a positive whole number, at most 1024"),
        ({"partial_rotary_factor": 1.5}, "'partial_rotary_factor' is 1.5; it must be a share of"),
        ({"partial_rotary_factor": 1e11}, "'partial_rotary_factor' is"),
        ({"partial_rotary_factor": 0.2}, "an even number of dimensions"),
        ({"rope_parameters": {"rope_theta": 1}}, "'rope_theta' is 1; it must be a number above 1"),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "factor": 2,
                    "low_freq_factor": 1,
                    "high_freq_factor": 1,
                    "rope_theta": 1e4,
                }
            },
            "another number than low_freq_factor",
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [0.0] * 8,
                    "long_factor": [1.0] * 8,
                }
            },
            "8 positive numbers",
        ),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised already"),
    ],
)
def test_a_senseless_config_is_refused_naming_the_field(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    change_config(folder, **changes)
    with pytest.raises(BadCheckpoint, match=message):
        read_config(folder)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("mixtral", {"num_experts_per_tok": 5}, "'num_experts_per_tok' is 5; .* at most 4"),
        ("qwen3-moe", {"num_experts": 10**9, "num_local_experts": 10**9}, "at most 4096"),
        ("qwen2", {"layer_types": ["full_attention", "linear_attention"]}, "not linear_attention"),
    ],
)
def test_a_senseless_config_of_a_family_is_refused_naming_the_field(
    tmp_path: Path, family: str, changes: dict[str, Any], message: str
) -> None:
    make_checkpoint(family, tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(BadCheckpoint, match=message):
        read_config(tmp_path)


def test_end_tokens_that_the_model_does_not_know_are_left_out(folder: Path) -> None:
    change_config(folder, eos_token_id=[5, -1, 160, 10**9])
    assert read_config(folder).end_ids == (5, 2)


def test_an_unknown_family_is_refused_naming_the_known_ones(folder: Path) -> None:
    change_config(folder, model_type="mamba", auto_map={"AutoModel": "evil.Model"})
    with pytest.raises(UnknownFamily) as caught:
        read_config(folder)
    assert all(family in str(caught.value) for family in FAMILIES)


@pytest.mark.parametrize("text", ["", "[]", '{"a": ', "[" * 100_000])
def test_a_config_that_is_no_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(BadCheckpoint, match=r"config\.json"):
        read_config(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    change_tensors(folder, model__layers__1__mlp__up_proj__weight=None)
    with pytest.raises(BadCheckpoint, match=r"lacks the tensor 'model\.layers\.1\.mlp\.up_proj"):
        load_decoder(folder)


def test_a_tensor_of_another_shape_is_named_with_both(folder: Path) -> None:
    change_tensors(folder, model__norm__weight=torch.zeros(63))
    with pytest.raises(BadCheckpoint, match=r"'model\.norm\.weight' has shape \[63\].* \[64\]"):
        load_decoder(folder)


def test_a_truncated_weights_file_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadCheckpoint, match=r"model\.safetensors cannot be read"):
        load_decoder(folder)


def test_a_pickle_is_not_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(BadCheckpoint, match="only safetensors are read"):
        load_decoder(folder)


@pytest.mark.parametrize("file", ["../elsewhere.safetensors", ".hidden.safetensors"])
def test_an_index_cannot_name_files_elsewhere_or_hidden_ones(folder: Path, file: str) -> None:
    index = {"weight_map": {"model.norm.weight": file}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadCheckpoint, match=r"must be a \.safetensors file beside it"):
        load_decoder(folder)


def test_weights_in_several_files_are_found_through_the_index(folder: Path) -> None:
    whole = load_decoder(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in halves.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in halves.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    span = Span(prompt(1, 20), 0, (0, 1), 1)
    assert torch.equal(logits(load_decoder(folder), span), logits(whole, span))


def test_end_tokens_come_from_both_configs(folder: Path) -> None:
    change_config(folder, eos_token_id=[5, 6])
    assert read_config(folder).end_ids == (5, 6, 2)


def test_old_configs_read_as_new_ones(folder: Path) -> None:
    scaling = {"type": "linear", "factor": 2.0}
    change_config(folder, rope_parameters={**scaling, "rope_type": "linear", "rope_theta": 5e4})
    new = read_config(folder)
    change_config(folder, rope_parameters=..., rope_scaling=scaling, rope_theta=5e4)
    assert read_config(folder) == new


def test_an_old_gemma3_config_reads_as_a_new_one(tmp_path: Path) -> None:
    make_checkpoint("gemma3", tmp_path)
    new = read_config(tmp_path)
    change_config(
        tmp_path, rope_parameters=..., layer_types=..., rope_theta=1e6, rope_local_base_freq=1e4,
        sliding_window_pattern=2,
    )  # fmt: skip
    assert read_config(tmp_path) == new


def test_gemma3_with_vision_is_read_for_its_text(tmp_path: Path) -> None:
    make_checkpoint("gemma3", tmp_path)
    alone = load_decoder(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({f"language_model.{name}": one for name, one in tensors.items()},
              tmp_path / "model.safetensors")  # fmt: skip
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    span = Span(prompt(1, 20), 0, (0, 1), 1)
    assert torch.equal(logits(load_decoder(tmp_path), span), logits(alone, span))


def test_a_model_loads_within_its_budget(folder: Path) -> None:
    loaded = load(folder, LoadSettings(memory_budget=8 << 20, precision="float32", step_tokens=32))
    assert loaded.plan.total <= 8 << 20
    assert loaded.plan.blocks * 16 >= CONTEXT
    assert loaded.context == CONTEXT


def test_a_budget_that_is_too_small_is_refused_with_what_would_do(folder: Path) -> None:
    with pytest.raises(NoRoom, match=r"give at least (\d+) MiB") as caught:
        load(folder, LoadSettings(memory_budget=100_000, step_tokens=32))
    enough = int(str(caught.value).partition("at least ")[2].split()[0])
    load(folder, LoadSettings(memory_budget=enough << 20, step_tokens=32))


def test_a_context_beyond_the_models_is_refused(folder: Path) -> None:
    with pytest.raises(BadCheckpoint, match="a context of 999 tokens was asked for"):
        load(folder, LoadSettings(memory_budget=8 << 20, context=999))


def test_a_tokenizer_that_is_missing_or_broken_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BadCheckpoint, match=r"tokenizer\.json cannot be read"):
        load(folder, LoadSettings(memory_budget=8 << 20))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadCheckpoint, match=r"there is no tokenizer\.json"):
        load(folder, LoadSettings(memory_budget=8 << 20))


def test_a_tokenizer_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(BadCheckpoint, match=r"tokenizer\.json is larger than 256 MiB"):
        read_tokeniser(tmp_path)


def test_a_tokeniser_turns_text_to_tokens_and_back() -> None:
    tokeniser = byte_tokeniser()
    tokens = tokeniser.encode("house")
    assert tokeniser.decode(tokens) == "house"
    assert tokeniser.name(tokens[0]) == "h"
    assert tokeniser.name(SMALL["vocab_size"] + 5) == ""
