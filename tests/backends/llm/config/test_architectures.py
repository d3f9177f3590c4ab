"""What a checkpoint was made for is read; what is no whole checkpoint says what it is."""

import json
from pathlib import Path

import pytest

from backends.errors import LoadFailed
from backends.llm.backend import examine
from backends.llm.config.families import read_config
from backends.llm.embedder import open_embedder
from backends.llm.errors import BadCheckpoint, UnknownFamily
from backends.llm.load import LoadSettings
from repository.folders.foreign_weights import foreign_weights
from server.fleet.checks.check_version import complete_version
from support.embedding import make_encoder
from support.llm import make_checkpoint, save_tokeniser
from support.runtime import make_version

LANGUAGE = 'backend: "llm"\nparameters { key: "context" value { string_value: "64" } }'


def say(folder: Path, *architectures: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": architectures}))


@pytest.mark.parametrize("pooling", ["", "mean"])
def test_a_classifier_neither_generates_nor_embeds(pooling: str, tmp_path: Path) -> None:
    asked = f'parameters {{ key: "pooling" value {{ string_value: "{pooling}" }} }}'
    version = make_version(tmp_path, LANGUAGE + (asked if pooling else ""))
    make_checkpoint("llama", version.path)
    save_tokeniser(version.path)
    say(version.path, "LlamaForSequenceClassification")
    with pytest.raises(LoadFailed, match="'LlamaForSequenceClassification', a sequence classifier"):
        examine(version)
    say(version.path, "LlamaForCausalLM")
    examine(version)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("BertForSequenceClassification", "reranker.*camembert, distilbert, roberta, xlm-roberta"),
        ("BertForTokenClassification", "a token classifier"),
        ("BertForNextSentencePrediction", "a model for another task"),
    ],
)
def test_an_encoder_with_another_head_is_refused(name: str, what: str, tmp_path: Path) -> None:
    make_encoder("bert", tmp_path)
    say(tmp_path, name)
    with pytest.raises(BadCheckpoint, match=what):
        open_embedder(tmp_path, LoadSettings(64 << 20, "float32"))


def test_an_unknown_family_hears_of_decoders_and_encoders(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(UnknownFamily, match=r"gemma, .*; and to embed, bert, camembert"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("adapter_config.json", "adapter_model.safetensors"), "an adapter (LoRA"),
        (("adapter_config.json", "adapter_model.safetensors", "config.json"), "an adapter (LoRA"),
        (("tiny.Q4_K_M.gguf",), "GGUF ('tiny.Q4_K_M.gguf')"),
        (("tiny.gguf", "config.json", "tokenizer.json"), "GGUF ('tiny.gguf')"),
    ],
)
@pytest.mark.parametrize("config", ["", LANGUAGE])
def test_a_folder_that_is_no_checkpoint_says_what_it_is(
    config: str, names: tuple[str, ...], what: str, tmp_path: Path
) -> None:
    version = make_version(tmp_path, config)
    for name in names:
        (version.path / name).write_text("{}")
    with pytest.raises(LoadFailed) as refused:
        complete_version(version)
    assert what in str(refused.value)
    assert "config.json, *.safetensors and tokenizer.json" in str(refused.value)


def test_other_files_beside_whole_weights_are_no_matter() -> None:
    assert foreign_weights(["model.safetensors", "model.gguf", "adapter_config.json"]) == ""
    assert foreign_weights(["model-00001-of-00002.safetensors", "config.json"]) == ""
    assert foreign_weights(["model.onnx"]) == ""
