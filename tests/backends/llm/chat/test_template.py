"""Chat templates: read where checkpoints keep them, and rendered as transformers renders them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from backends.llm.chat.render import TemplateFailed, _answer, render
from backends.llm.chat.render_messages import (
    RenderAnswer,
    RenderedChat,
    RenderRefused,
    decode_answer,
    encode,
    request_for,
)
from backends.llm.chat.template import Chat, ChatTemplate, read_template
from backends.llm.errors import BadCheckpoint
from support.chat_templates import CHATML, CHATS, TEMPLATES, TOOLS

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def theirs(text: str, messages: list[dict[str, Any]], **settings: Any) -> str:
    """What transformers makes of it; its error's text where it makes none."""
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, "<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, **SPECIALS)
    tokenizer.chat_template = text
    try:
        made = tokenizer.apply_chat_template(messages, tokenize=False, **settings)
    except Exception as error:  # noqa: BLE001 (whatever it raises is compared)
        return f"refused: {error}"
    assert isinstance(made, str)
    return made


def ours(text: str, chat: Chat) -> str:
    template = ChatTemplate({"default": text}, SPECIALS)
    try:
        return render(template.text_for(chat), template.variables_for(chat), chat.continues)
    except TemplateFailed as error:
        return f"refused: {error}"


@pytest.mark.parametrize("opened", [True, False], ids=["opened", "closed"])
@pytest.mark.parametrize("messages", CHATS.values(), ids=CHATS)
@pytest.mark.parametrize("text", TEMPLATES.values(), ids=TEMPLATES)
def test_a_chat_reads_as_transformers_makes_it(
    text: str, messages: list[dict[str, Any]], opened: bool
) -> None:
    expected = theirs(text, messages, add_generation_prompt=opened)
    assert ours(text, Chat(messages, open_answer=opened)) == expected


@pytest.mark.parametrize("name", ["llama3", "qwen", "mistral"])
def test_tools_read_as_transformers_makes_them(name: str) -> None:
    messages = CHATS["with a system prompt"]
    expected = theirs(TEMPLATES[name], messages, tools=TOOLS, add_generation_prompt=True)
    assert ours(TEMPLATES[name], Chat(messages, tools=TOOLS)) == expected


@pytest.mark.parametrize("name", ["chatml", "llama3", "qwen", "phi"])
def test_a_last_message_is_continued_as_transformers_does(name: str) -> None:
    messages = CHATS["turns"]
    expected = theirs(TEMPLATES[name], messages, continue_final_message=True)
    assert ours(TEMPLATES[name], Chat(messages, continues=True)) == expected


def test_variables_and_documents_reach_the_template() -> None:
    documents = [{"title": "t", "text": "x"}]
    chat = Chat(CHATS["turns"][:1], documents=documents, variables={"enable_thinking": False})
    for name in ("qwen", "oddities"):
        expected = theirs(
            TEMPLATES[name],
            CHATS["turns"][:1],
            documents=documents,
            enable_thinking=False,
            add_generation_prompt=True,
        )
        assert ours(TEMPLATES[name], chat) == expected


def test_nulls_are_left_out_of_messages() -> None:
    messages = [{"role": "user", "content": "x", "name": None}]
    text = "{{ messages[0] | tojson }}"
    assert ours(text, Chat(messages)) == '{"role": "user", "content": "x"}'


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages.__init__.__globals__ }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(_x=1) }}",
        "{{ dict.mro() }}{{ dict.__subclasses__() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['__builtins__'] }}",
        "{{ ('{0.__class__}').format(messages) }}{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__ }}",
        "{{ range(10000000) }}",
    ],
)
def test_the_sandbox_lets_nothing_out(text: str) -> None:
    said = ours(text, Chat(CHATS["one question"]))
    assert not said or said.startswith("refused: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{% if %}", "line 1: Expected an expression"),
        ("a\n{{ messages[0].missing.field }}", "has no attribute 'missing'"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ raise_exception('Only cats.') }}", "Only cats."),
        ("{{ strftime_now(3) }}", "TypeError"),
        ("{% for a in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "more than 16777216 characters"),
    ],
)
def test_a_template_that_fails_says_why(text: str, reason: str) -> None:
    assert reason in ours(text, Chat(CHATS["one question"]))


def test_the_process_answers_with_the_text_or_the_reason() -> None:
    chat = Chat([{"role": "user", "content": "Füchse 🦊"}])
    template = ChatTemplate({"default": CHATML}, {})
    made = "<|im_start|>user\nFüchse 🦊<|im_end|>\n<|im_start|>assistant\n"
    assert answer_to(template, chat) == RenderedChat(made)
    broken = ChatTemplate({"default": "{{ raise_exception('no') }}"}, {})
    assert answer_to(broken, chat) == RenderRefused("no")


def test_half_a_surrogate_pair_is_rendered_as_the_replacement_character() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}"}, {})
    chat = Chat([{"role": "user", "content": "a\ud800b"}])
    assert answer_to(template, chat) == RenderedChat("a\ufffdb")


def test_numbers_of_any_size_reach_the_template() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}"}, {})
    assert answer_to(template, Chat([{"role": "user", "content": 2**80}])) == RenderedChat(
        str(2**80)
    )


def answer_to(template: ChatTemplate, chat: Chat) -> RenderAnswer:
    return decode_answer(_answer(encode(request_for(template, chat))))


# where templates are


def write(folder: Path, **config: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_a_checkpoint_without_a_template_has_none(tmp_path: Path) -> None:
    assert read_template(tmp_path) is None
    write(tmp_path, bos_token="<s>")
    assert read_template(tmp_path) is None


def test_special_tokens_are_strings_or_objects(tmp_path: Path) -> None:
    write(tmp_path, chat_template="x", bos_token="<s>", eos_token={"content": "</s>", "lstrip": 1})
    found = read_template(tmp_path)
    assert found == ChatTemplate({"default": "x"}, {"bos_token": "<s>", "eos_token": "</s>"})


def test_of_several_templates_tools_choose_theirs(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    write(tmp_path, chat_template=named)
    template = read_template(tmp_path)
    assert template is not None
    assert template.text_for(Chat([])) == "a"
    assert template.text_for(Chat([], tools=TOOLS)) == "b"


def test_a_file_of_its_own_counts_before_the_config(tmp_path: Path) -> None:
    write(tmp_path, chat_template="old")
    (tmp_path / "chat_template.json").write_text('{"chat_template": "newer"}')
    assert read_template(tmp_path) == ChatTemplate({"default": "newer"}, {})
    (tmp_path / "chat_template.jinja").write_text("newest ü", "utf-8")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("t")
    (tmp_path / "additional_chat_templates" / ".hidden.jinja").write_text("h")
    assert read_template(tmp_path) == ChatTemplate({"default": "newest ü", "tool_use": "t"}, {})


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"chat_template": 3}, "chat_template"),
        ({"chat_template": [{"name": "default"}]}, "chat_template"),
        ({"chat_template": ["x"]}, "chat_template"),
        ({"chat_template": "x", "bos_token": 3}, "bos_token"),
    ],
)
def test_a_config_that_makes_no_sense_names_its_field(
    tmp_path: Path, config: dict[str, Any], named: str
) -> None:
    write(tmp_path, **config)
    with pytest.raises(BadCheckpoint, match=f"tokenizer_config.json: '{named}' is"):
        read_template(tmp_path)


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(BadCheckpoint, match=r"chat_template\.jinja cannot be read"):
        read_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(BadCheckpoint, match=r"chat_template\.jinja is larger than 1 MiB"):
        read_template(tmp_path)
