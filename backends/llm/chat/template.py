"""A checkpoint's chat template: where it is written, and what it is given to render.

`backends.llm.chat.render` renders it, in a process of its own: a template is a program of whoever
made the checkpoint, and may run for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.llm.config.fields import ConfigFields, read_fields
from backends.llm.errors import BadCheckpoint
from backends.llm.tools.formats import AUTO, FORMATS, ToolFormat, detect_format, takes_tools

CONFIG = "tokenizer_config.json"
ALONE = "chat_template.jinja"
ALONE_JSON = "chat_template.json"
MORE = "additional_chat_templates"
MAX_BYTES = 1 << 20
MAX_TEMPLATES = 32
SPECIALS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)

DEFAULT, TOOL_USE = "default", "tool_use"


@dataclass(frozen=True, slots=True)
class Chat:
    """What a template is given. Every value is plain JSON.

    `open_answer`: end with what begins the assistant's turn. `continues`: the last message is not
    over, and the answer goes on with it. `variables`: what else the template may look at.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    open_answer: bool = True
    continues: bool = False
    variables: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """Jinja texts by name, most checkpoints having only "default", and the names of tokens that
    they may use, such as `bos_token`. `added`: tokens that tokenizer_config.json lists as added to
    the vocabulary."""

    texts: Mapping[str, str]
    specials: Mapping[str, str]
    added: frozenset[str] = frozenset()

    def text_for(self, chat: Chat) -> str:
        """The text that renders a chat: there may be one for chats with tools."""
        return self.text(with_tools=chat.tools is not None)

    def text(self, *, with_tools: bool) -> str:
        if with_tools and TOOL_USE in self.texts:
            return self.texts[TOOL_USE]
        return self.texts.get(DEFAULT) or next(iter(self.texts.values()))

    def tool_format(self, wanted: str = AUTO) -> ToolFormat | None:
        """How its model writes calls of tools: as it teaches, unless a format is named. None where
        it does not look at tools: they would never be in its prompt."""
        text = self.text(with_tools=True)
        if not takes_tools(text):
            return None
        return detect_format(text, self.added) if wanted == AUTO else FORMATS[wanted]

    def variables_for(self, chat: Chat) -> dict[str, Any]:
        """What the text may look at. Fields that are null are left out, as templates expect."""
        messages = [
            {key: value for key, value in message.items() if value is not None}
            for message in chat.messages
        ]
        return {
            **self.specials,
            **(chat.variables or {}),
            "messages": messages,
            "tools": chat.tools,
            "documents": chat.documents,
            "add_generation_prompt": chat.open_answer and not chat.continues,
        }


def read_template(folder: Path) -> ChatTemplate | None:
    """The template of a checkpoint, None where it has none. Raises BadCheckpoint.

    A file of its own counts before the field in tokenizer_config.json. What is wrong with the Jinja
    itself is found when it renders.
    """
    config = (
        read_fields(folder / CONFIG) if (folder / CONFIG).is_file() else ConfigFields({}, CONFIG)
    )
    texts = _field_texts(config) | _file_texts(folder)
    if not texts:
        return None
    return ChatTemplate(texts, _specials(config), _added(config))


def _field_texts(config: ConfigFields) -> dict[str, str]:
    value = config.values.get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    wanted = "a string, or a list of objects with a 'name' and a 'template'"
    if not isinstance(value, list) or len(value) > MAX_TEMPLATES:
        raise config.refuse("chat_template", wanted)
    texts = {}
    for one in value:
        if not isinstance(one, dict):
            raise config.refuse("chat_template", wanted)
        name, text = one.get("name"), one.get("template")
        if not isinstance(name, str) or not isinstance(text, str):
            raise config.refuse("chat_template", wanted)
        texts[name] = text
    return texts


def _file_texts(folder: Path) -> dict[str, str]:
    texts = {}
    if (folder / ALONE_JSON).is_file():
        texts[DEFAULT] = read_fields(folder / ALONE_JSON).text("chat_template")
    if (folder / ALONE).is_file():
        texts[DEFAULT] = _read(folder / ALONE)
    for path in sorted((folder / MORE).glob("[!.]*.jinja"))[:MAX_TEMPLATES]:
        texts[path.stem] = _read(path)
    return texts


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadCheckpoint(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadCheckpoint(f"{path.name} cannot be read: {error}") from None


def _specials(config: ConfigFields) -> dict[str, str]:
    """Special tokens as text; older configs write each as an object with its `content`."""
    found = {}
    for name in SPECIALS:
        value = config.values.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
        elif value is not None:
            raise config.refuse(name, "a string, or an object with the string 'content'")
    return found


def _added(config: ConfigFields) -> frozenset[str]:
    listed = config.within("added_tokens_decoder")
    tokens = () if listed is None else listed.values.values()
    contents = (one.get("content") for one in tokens if isinstance(one, dict))
    return frozenset(one for one in contents if isinstance(one, str))
