"""A chat completion as it is asked for: messages, tools, and how to answer. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from backends.llm.chat.template import Chat, ChatTemplate
from server.openai.bodies.options import (
    MAX_TOKENS,
    Empty,
    GenerationBody,
    GenerationOptions,
    LogprobCount,
    ModelName,
    read_options,
)
from server.openai.bodies.request_fields import (
    NotOffered,
    OnlyFalse,
    OpenAIBody,
    not_offered,
    read_body,
    wanted,
)
from server.openai.bodies.tools import (
    AllowedTools,
    PriorToolCalls,
    ToolDefinitions,
    ToolSelection,
    read_calls,
    read_tools,
)
from server.rest.openai_errors import BadField

MAX_MESSAGES, MAX_PARTS, MAX_DOCUMENTS = 4096, 1024, 1024

ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXTS = ("name", "tool_call_id", "reasoning_content", "reasoning", "thinking", "refusal")


class TextPart(OpenAIBody, tag_field="type", tag="text", frozen=True):
    """Text of a message."""

    text: str


class RefusalPart(OpenAIBody, tag_field="type", tag="refusal", frozen=True):
    """What the model said instead of an answer."""

    refusal: str


ContentPart = Annotated[
    TextPart | RefusalPart,
    wanted("an object with a type", tag_unsupported="this model reads text only"),
]
Content = Annotated[
    str | Annotated[list[ContentPart], Meta(max_length=MAX_PARTS)],
    wanted(f"a string, or a list of at most {MAX_PARTS} parts"),
]


class PlainMessage(OpenAIBody, tag_field="role", frozen=True):
    """What every message may have; its texts are the template's to use."""

    name: str | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    refusal: str | None = None
    annotations: Any = None
    function_call: NotOffered = None
    audio: NotOffered = None


class SystemMessage(PlainMessage, kw_only=True, tag="system", frozen=True):
    """How to answer."""

    content: Content


class DeveloperMessage(PlainMessage, kw_only=True, tag="developer", frozen=True):
    """How to answer, in OpenAI's newer word for it."""

    content: Content


class UserMessage(PlainMessage, kw_only=True, tag="user", frozen=True):
    """What to answer."""

    content: Content


class AssistantMessage(PlainMessage, tag="assistant", frozen=True):
    """An earlier answer."""

    content: Content | None = None
    tool_calls: PriorToolCalls | None = None


class ToolMessage(PlainMessage, kw_only=True, tag="tool", frozen=True):
    """What a call brought."""

    content: Content
    tool_call_id: str


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage,
    wanted(
        "an object with a role and content",
        tag="one of " + ", ".join(f"'{one}'" for one in ROLES),
    ),
]
Messages = Annotated[
    list[Message],
    Meta(min_length=1, max_length=MAX_MESSAGES),
    wanted(f"a list of 1 to {MAX_MESSAGES} messages"),
]
Documents = Annotated[
    list[dict[str, Any]],
    Meta(max_length=MAX_DOCUMENTS),
    wanted(f"a list of at most {MAX_DOCUMENTS} objects"),
]


class ChatBody(GenerationBody, kw_only=True, frozen=True):
    """A chat to answer."""

    messages: Messages
    tools: ToolDefinitions | None = None
    tool_choice: ToolSelection | None = None
    parallel_tool_calls: bool | None = None
    documents: Documents | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: LogprobCount | None = None

    audio: NotOffered = None
    chat_template: NotOffered = None
    echo: OnlyFalse = None
    function_call: Annotated[Literal["none"], not_offered()] | None = None
    functions: Annotated[Empty, not_offered()] | None = None
    modalities: (
        Annotated[
            list[Literal["text"]],
            Meta(min_length=1, max_length=1),
            not_offered(entire=True),
        ]
        | None
    ) = None
    prediction: NotOffered = None
    reasoning_effort: Annotated[Literal["none"], not_offered()] | None = None
    verbosity: Annotated[Literal["medium"], not_offered()] | None = None
    web_search_options: NotOffered = None
    mm_processor_kwargs: NotOffered = None
    media_io_kwargs: NotOffered = None
    include_reasoning: Annotated[bool, not_offered()] | None = None


class ConversationBody(OpenAIBody, frozen=True):
    """A chat to make tokens of."""

    model: ModelName
    messages: Messages
    tools: ToolDefinitions | None = None
    tool_choice: ToolSelection | None = None
    parallel_tool_calls: bool | None = None
    documents: Documents | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    chat_template: NotOffered = None
    return_token_strs: bool | None = None


@dataclass(frozen=True, slots=True)
class ChatCompletionRequest:
    """`special`: the tokeniser adds its own tokens around what the template made. `calling`: the
    tools that the answer may call."""

    chat: Chat
    special: bool
    calling: AllowedTools | None
    options: GenerationOptions


def read_chat(document: dict[str, Any]) -> ChatCompletionRequest:
    """Raises BadField."""
    body = read_body(ChatBody, document)
    chat, special, calling = read_conversation(body)
    options = read_options(body, _max_tokens(body), _logprobs(body))
    if calling is not None and options.shape is not None:
        raise BadField(
            f"{options.shape.field} would keep the model from calling tools; leave it out, or set "
            "tool_choice to 'none'",
            options.shape.field,
        )
    return ChatCompletionRequest(chat, special, calling, options)


def read_conversation(body: ChatBody | ConversationBody) -> tuple[Chat, bool, AllowedTools | None]:
    """What the template is given, whether the tokeniser adds tokens, and what may be called."""
    many = body.parallel_tool_calls is not False
    tools, calling = read_tools(body.tools, body.tool_choice, many)
    chat = Chat(
        messages=tuple(_message(one, at) for at, one in enumerate(body.messages)),
        tools=tools,
        documents=body.documents,
        continues=body.continue_final_message is True,
        variables=body.chat_template_kwargs,
    )
    opens = body.add_generation_prompt
    if chat.continues:
        _refuse_unfit_to_continue(chat, opens)
    return replace(chat, open_answer=opens is not False), body.add_special_tokens is True, calling


def spoken(chat: Chat, template: ChatTemplate) -> Chat:
    """The chat in roles the template knows: `developer` is OpenAI's newer word for `system`, which
    few templates know."""
    if "developer" in template.text_for(chat):
        return chat
    messages = [
        {**one, "role": "system"} if one["role"] == "developer" else one for one in chat.messages
    ]
    return replace(chat, messages=messages)


def _refuse_unfit_to_continue(chat: Chat, opens: bool | None) -> None:
    name = "continue_final_message"
    if opens:
        raise BadField(f"{name} contradicts add_generation_prompt; give one of them", name)
    if not isinstance(chat.messages[-1].get("content"), str):
        raise BadField(f"{name} needs a last message with content", name)


def _message(message: Message, at: int) -> Mapping[str, Any]:
    """As templates have it."""
    found: dict[str, Any] = {
        "role": message.__struct_config__.tag,
        "content": _content(message.content),
    }
    for name in _TEXTS:
        if (text := getattr(message, name)) is not None:
            found[name] = text
    calls = None
    if isinstance(message, AssistantMessage):
        calls = read_calls(message.tool_calls, f"messages[{at}].tool_calls")
    if calls is not None:
        found["tool_calls"] = calls
    elif found["content"] is None:
        found["content"] = found.pop("refusal", None) or ""
    return found


def _content(value: str | Sequence[TextPart | RefusalPart] | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return "\n".join(one.text if isinstance(one, TextPart) else one.refusal for one in value)


def _max_tokens(body: ChatBody) -> int | None:
    """OpenAI has renamed it; both may be given if they agree."""
    older, newer = body.max_tokens, body.max_completion_tokens
    if older is not None and newer is not None and older != newer:
        raise BadField(
            f"max_tokens is {older} and max_completion_tokens {newer}; give one of them",
            "max_tokens",
        )
    return older if newer is None else newer


def _logprobs(body: ChatBody) -> int | None:
    count = body.top_logprobs
    if count and not body.logprobs:
        raise BadField("top_logprobs is only allowed when logprobs is true", "top_logprobs")
    return (count or 0) if body.logprobs else None
