"""The checker's side of a language model: its config completed without torch."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from backends.errors import LoadFailed
from backends.llm.backend import LanguageModels
from repository.model import ModelConfig, ModelVersion
from server.fleet.checks.check_version import complete_version
from support.embedding import make_encoder
from support.llm import make_checkpoint, save_tokeniser

ROOT = Path(__file__).resolve().parents[3]
ALONE = """
import sys
from pathlib import Path
from backends.llm.backend import LanguageModels
from repository.model import ModelConfig, ModelVersion
folder = Path(sys.argv[1])
version = ModelVersion("m", 1, folder.parent, folder, ModelConfig(name="m"), "")
assert LanguageModels().complete(version, 4).backend == "llm"
import schedulers.llm.gateway.language_scheduler
assert "torch" not in sys.modules
assert "transformers" not in sys.modules
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("model") / "1"
    make_checkpoint("llama", made)
    save_tokeniser(made)
    return made


def version(folder: Path, text: str = "") -> ModelVersion:
    config = text_format.Parse(f'name: "m" {text}', ModelConfig())
    return ModelVersion("m", 1, folder.parent, folder, config, "")


def test_a_folder_alone_is_enough(folder: Path) -> None:
    config = complete_version(version(folder))
    assert config.backend == "llm"
    assert [one.name for one in config.input] == [
        "text_input",
        "stream",
        "sampling_parameters",
        "exclude_input_in_output",
    ]
    assert [one.name for one in config.input if not one.optional] == ["text_input"]
    assert [one.name for one in config.output] == ["text_output"]
    assert config.model_transaction_policy.decoupled


def test_what_is_written_may_repeat_it(folder: Path) -> None:
    text = 'input { name: "text_input" data_type: TYPE_STRING dims: 1 }'
    assert len(complete_version(version(folder, text)).input) == 4


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('input { name: "prompt" data_type: TYPE_STRING dims: 1 }', "there is no input 'prompt'"),
        ('input { name: "text_input" data_type: TYPE_INT32 dims: 1 }', "must be TYPE_STRING"),
        ('output { name: "text_output" dims: 3 }', "must be TYPE_STRING with dims [1]"),
        ("max_batch_size: 8", "set the parameter max_running instead"),
        ("dynamic_batching {}", "dynamic_batching does nothing for a language model"),
        ("sequence_batching {}", "sequence_batching does nothing for a language model"),
        ("response_cache { enable: true }", "which cache prefixes"),
    ],
)
def test_what_cannot_be_honoured_is_refused(folder: Path, text: str, complaint: str) -> None:
    with pytest.raises(LoadFailed) as refused:
        LanguageModels().complete(version(folder, text), 4)
    assert str(refused.value).startswith("model 'm' version 1: ")
    assert complaint in str(refused.value)


def test_a_decoder_may_ask_for_a_gpu(folder: Path) -> None:
    config = complete_version(version(folder, "instance_group { kind: KIND_GPU gpus: 1 }"))
    assert list(config.instance_group[0].gpus) == [1]


def test_an_encoder_may_not_ask_for_a_gpu(tmp_path: Path) -> None:
    make_encoder("bert", tmp_path / "1")
    save_tokeniser(tmp_path / "1")
    with pytest.raises(LoadFailed, match="encoders run on KIND_CPU so far"):
        complete_version(version(tmp_path / "1", "instance_group { gpus: 0 }"))


def test_neither_checking_nor_the_gateway_imports_torch(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", ALONE, str(folder)], cwd=ROOT, check=True, timeout=120)
