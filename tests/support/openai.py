"""A tiny language model behind `modelyard serve`, and the stock `openai` client to ask it.

The model is random: what it says is noise, though always the same noise. Its tokeniser has a token
for each byte, so that lengths are known, and puts `<s>` before a text.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from support.chat_templates import CHATML
from support.llm import make_checkpoint
from support.server import Server, running

TEMPLATE = (
    "{% if messages[0].content == 'fail' %}{{ raise_exception('no such talk') }}{% endif %}"
    + CHATML
)
"""ChatML, but for chats it refuses."""

SPECIALS = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
BEGIN, END = 1, 2
VOCABULARY = 264
CONTEXT = 256
CONFIG = """
backend: "llm"
parameters { key: "precision" value { string_value: "float32" } }
parameters { key: "threads" value { string_value: "1" } }
parameters { key: "memory_budget" value { string_value: "64MiB" } }
"""
START_SECS = 180.0
"""Two engines import torch meanwhile, beside whatever else the machine does."""
_LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


def tokenizer() -> Tokenizer:
    """One token for each byte, and `<s>` before a text."""
    names = [*SPECIALS, *_LETTERS]
    made = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", BEGIN)]
    )
    return made


def tokens_of(text: str, *, special: bool = True) -> list[int]:
    found: list[int] = tokenizer().encode(text, add_special_tokens=special).ids
    return found


def write_language(
    repository: Path,
    name: str = "talker",
    version: int = 1,
    *,
    template: str | None = TEMPLATE,
    config: str = CONFIG,
    **changes: Any,
) -> Any:
    """A random model with a tokeniser and a chat template; the transformers model itself."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, **changes}
    model = make_checkpoint("llama", folder, **sizes)
    tokenizer().save(str(folder / "tokenizer.json"))
    said = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    (repository / name / "config.pbtxt").write_text(config)
    return model


@contextmanager
def serving(repository: Path, **settings: object) -> Iterator[Server]:
    with running(repository, wait=False, **settings) as server:
        server.wait_ready(START_SECS)
        yield server


def client(server: Server, **settings: Any) -> OpenAI:
    """The stock client, which asks once and no more."""
    return OpenAI(**_settings(server, settings))


def async_client(server: Server, **settings: Any) -> AsyncOpenAI:
    return AsyncOpenAI(**_settings(server, settings))


def _settings(server: Server, settings: dict[str, Any]) -> dict[str, Any]:
    base = {"base_url": f"http://{server.http}/v1", "api_key": "none", "max_retries": 0}
    return {**base, "timeout": 60.0, **settings}


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """What transformers goes on with."""
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = model.generate(
            torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0
        )
    found: list[int] = made[0, len(prompt) :].tolist()
    return found
