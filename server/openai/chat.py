"""A chat completion as it is asked for: messages, tools, and how to answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from backends.llm.chat.template import Chat, ChatTemplate
from server.openai.options import MAX_LOGPROBS, MAX_TOKENS, GenerationOptions, read_options
from server.openai.request_fields import RequestFields
from server.openai.tools import AllowedTools, read_calls, read_tools
from server.rest.openai_errors import BadField

MAX_MESSAGES, MAX_PARTS, MAX_DOCUMENTS = 4096, 1024, 1024

ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXTS = ("name", "tool_call_id", "reasoning_content", "reasoning", "thinking", "refusal")

_NOT_OFFERED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("audio", ()),
    ("chat_template", ()),
    ("echo", (False,)),
    ("function_call", ("none",)),
    ("functions", ([],)),
    ("modalities", (["text"],)),
    ("prediction", ()),
    ("reasoning_effort", ("none",)),
    ("verbosity", ("medium",)),
    ("web_search_options", ()),
    ("mm_processor_kwargs", ()),
    ("media_io_kwargs", ()),
    ("include_reasoning", (True, False)),
)


@dataclass(frozen=True, slots=True)
class ChatCompletionRequest:
    """`special`: the tokeniser adds its own tokens around what the template made. `calling`: the
    tools that the answer may call."""

    chat: Chat
    special: bool
    calling: AllowedTools | None
    options: GenerationOptions


def read_chat(fields: RequestFields) -> ChatCompletionRequest:
    """Raises BadField."""
    fields.pass_over(("model",))
    for name, neutral in _NOT_OFFERED:
        fields.only(name, *neutral)
    chat, special, calling = read_conversation(fields)
    options = read_options(fields, _max_tokens(fields), _logprobs(fields))
    fields.finish()
    if calling is not None and options.shape is not None:
        raise BadField(
            f"{options.shape.field} would keep the model from calling tools; leave it out, or set "
            "tool_choice to 'none'",
            options.shape.field,
        )
    return ChatCompletionRequest(chat, special, calling, options)


def read_conversation(fields: RequestFields) -> tuple[Chat, bool, AllowedTools | None]:
    """What the template is given, whether the tokeniser adds tokens, and what may be called."""
    tools, calling = read_tools(fields)
    chat = Chat(
        messages=_messages(fields),
        tools=tools,
        documents=fields.objects("documents", MAX_DOCUMENTS),
        continues=fields.flag("continue_final_message"),
        variables=_variables(fields),
    )
    asked = fields.take("add_generation_prompt")
    if asked is not None and not isinstance(asked, bool):
        raise fields.refused("add_generation_prompt", asked, "true or false")
    special = fields.flag("add_special_tokens", False)
    if chat.continues:
        _refuse_unfit_to_continue(chat, asked)
    return replace(chat, open_answer=asked is not False), special, calling


def spoken(chat: Chat, template: ChatTemplate) -> Chat:
    """The chat in roles the template knows: `developer` is OpenAI's newer word for `system`, which
    few templates have heard of."""
    if "developer" in template.text_for(chat):
        return chat
    messages = [
        {**one, "role": "system"} if one["role"] == "developer" else one for one in chat.messages
    ]
    return replace(chat, messages=messages)


def _refuse_unfit_to_continue(chat: Chat, asked: bool | None) -> None:
    name = "continue_final_message"
    if asked:
        raise BadField(f"{name} contradicts add_generation_prompt; give one of them", name)
    if not isinstance(chat.messages[-1].get("content"), str):
        raise BadField(f"{name} needs a last message with content", name)


def _messages(fields: RequestFields) -> tuple[Mapping[str, Any], ...]:
    value = fields.needed("messages")
    if not isinstance(value, list) or not 0 < len(value) <= MAX_MESSAGES:
        raise fields.refused("messages", value, f"a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(fields, f"messages[{at}]", one) for at, one in enumerate(value))


def _message(fields: RequestFields, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise fields.refused(name, value, "an object with a role and content")
    message = RequestFields(value, name)
    role = message.needed("role")
    if role not in ROLES:
        raise message.refused("role", role, "one of " + ", ".join(f"'{one}'" for one in ROLES))
    found: dict[str, Any] = {"role": role}
    calls = read_calls(message) if role == "assistant" else None
    found["content"] = _content(message, required=calls is None and role != "assistant")
    for text in _TEXTS:
        if (said := message.text(text)) is not None:
            found[text] = said
    if role == "tool" and "tool_call_id" not in found:
        message.needed("tool_call_id")
    if calls is not None:
        found["tool_calls"] = calls
    message.only("function_call")
    message.only("audio")
    message.pass_over(("annotations",))  # where an earlier answer's text came from
    message.finish()
    if found["content"] is None and calls is None:
        found["content"] = found.pop("refusal", None) or ""
    return found


def _content(message: RequestFields, required: bool) -> str | None:
    name = "content"
    value = message.needed(name) if required else message.take(name)
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list) or len(value) > MAX_PARTS:
        raise message.refused(name, value, f"a string, or a list of at most {MAX_PARTS} parts")
    return "\n".join(_part(message, f"{name}[{at}]", one) for at, one in enumerate(value))


def _part(message: RequestFields, name: str, value: Any) -> str:
    if not isinstance(value, dict):
        raise message.refused(name, value, "an object with a type")
    part = RequestFields(value, message.path(name))
    kind = part.needed("type")
    if kind not in ("text", "refusal"):
        path = part.path("type")
        raise BadField(f"{path} is {kind!r:.80}; this model reads text only", path, "unsupported")
    text = part.needed(kind)
    if not isinstance(text, str):
        raise part.refused(kind, text, "a string")
    part.finish()
    return text


def _variables(fields: RequestFields) -> Mapping[str, Any] | None:
    name = "chat_template_kwargs"
    value = fields.take(name)
    if value is not None and not isinstance(value, dict):
        raise fields.refused(name, value, "an object")
    return value


def _max_tokens(fields: RequestFields) -> int | None:
    """OpenAI has renamed it; both may be given if they agree."""
    older = fields.whole("max_tokens", 1, MAX_TOKENS)
    newer = fields.whole("max_completion_tokens", 1, MAX_TOKENS)
    if older is not None and newer is not None and older != newer:
        raise BadField(
            f"max_tokens is {older} and max_completion_tokens {newer}; give one of them",
            "max_tokens",
        )
    return older if newer is None else newer


def _logprobs(fields: RequestFields) -> int | None:
    wanted = fields.flag("logprobs")
    count = fields.whole("top_logprobs", 0, MAX_LOGPROBS)
    if count and not wanted:
        raise BadField("top_logprobs is only allowed when logprobs is true", "top_logprobs")
    return (count or 0) if wanted else None
