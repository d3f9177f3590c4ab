"""The story teller: its text, its tokenizer, and that what is trained is what is saved."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.peers import modelyard
from examples.stories.checkpoint import save
from examples.stories.network import Network, Shape
from examples.stories.tales import ANIMALS, Turn, story, talk
from examples.stories.tokens import CHAT_TEMPLATE, documents, train_tokenizer, written
from examples.stories.training import Recipe, rate_at, train

TINY = Recipe(seed=3, steps=12, rows=2, length=64, warm_up=2, threads=1)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(seed=1, texts=200)


@pytest.fixture(scope="module")
def network(tokenizer: Tokenizer) -> Network:
    return _trained(tokenizer)


@pytest.fixture(scope="module")
def folder(
    network: Network, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    made: Path = tmp_path_factory.mktemp("stories")
    save(network, tokenizer, made)
    return made


def _trained(tokenizer: Tokenizer) -> Network:
    shape = Shape(tokenizer.get_vocab_size(), hidden=64, width=96, layers=2, heads=4, kv_heads=2)
    return train(tokenizer, TINY, shape, tell=lambda line: None).network


def test_the_same_seed_tells_the_same_stories() -> None:
    assert list(documents(5, 3)) == list(documents(5, 3))
    assert list(documents(5, 3)) != list(documents(6, 3))


@pytest.mark.parametrize("animal", ANIMALS)
def test_a_story_is_about_whom_it_was_asked_for(animal: str) -> None:
    told = story(Random(1), animal)
    assert f"{animal} " in told.split(".")[0]
    assert any(name in told for name in ANIMALS[animal])


def test_any_text_survives_the_tokenizer(tokenizer: Tokenizer) -> None:
    for text in ("Once upon a time.", "größe 狐 🦊\n\ttab", ""):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text


def test_a_conversation_is_written_as_the_chat_template_writes_it(folder: Path) -> None:
    turns = talk(Random(2))
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    theirs = AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False)
    assert theirs == "<|begin|>" + written(turns)


def test_a_role_it_does_not_know_is_refused_by_the_template(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    with pytest.raises(Exception, match="system, user and assistant, not narrator"):
        tokenizer.apply_chat_template([{"role": "narrator", "content": "x"}], tokenize=False)


def test_the_saved_checkpoint_gives_transformers_the_same_logits(
    folder: Path, network: Network, tokenizer: Tokenizer
) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.tensor([tokenizer.encode(written([Turn("user", "Hello!")])).ids])
    ours = Network(network.shape)
    ours.load_state_dict({k: v.bfloat16().float() for k, v in network.state_dict().items()})
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=0, atol=1e-4)


def test_the_same_recipe_trains_the_same_network(tokenizer: Tokenizer, network: Network) -> None:
    again = _trained(tokenizer).state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in network.state_dict().items())


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [rate_at(step, Recipe(steps=100, warm_up=10)) for step in range(100)]
    assert rates.index(max(rates)) in (9, 10)
    assert rates == sorted(rates[:10]) + sorted(rates[10:], reverse=True)


def test_building_the_examples_does_not_train_it() -> None:
    code = "from examples.build import EXAMPLES; print([one.name for one in EXAMPLES])"
    command = [sys.executable, "-c", code]
    said = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180
    )
    assert "stories" not in said.stdout


@pytest.mark.slow
def test_its_caller_is_answered_over_both_apis(folder: Path, tmp_path: Path) -> None:
    version = tmp_path / "models" / "stories" / "1"
    shutil.copytree(folder, version)
    shutil.copy(ROOT / "examples" / "stories" / "config.pbtxt", version.parent)
    with modelyard.started(tmp_path / "models", tmp_path / "cache") as server:
        command = [sys.executable, "-m", "examples.stories.call"]
        command += ["--http", server.rest, "--grpc", server.grpc]
        said = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
        )
    assert said.returncode == 0, said.stderr
    assert "gRPC: Once upon a time" in said.stdout
    assert ("OpenAI: " in said.stdout) == (find_spec("openai") is not None)
