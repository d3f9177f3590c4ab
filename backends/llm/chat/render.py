"""A process that renders chat templates for the gateway: Jinja in its sandbox, and nothing else.

It answers the requests of its parent (`backends.llm.chat.render_messages`) one after the other, and
ends when the parent hangs up. Nothing here bounds the time: it is killed when a template runs too
long; one that takes too much memory fails by itself.
"""

import json
import resource
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from backends.llm.chat.render_messages import (
    RenderedChat,
    RendererStarted,
    RenderRefused,
    decode_request,
    encode,
)
from repository.process.parent import connect

MEMORY_BYTES = 1 << 30
MAX_CHARACTERS = 1 << 24
"""Of a rendered chat."""
_MOST_REASON_CHARACTERS = 2000
_HERE = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING = ("reasoning_content", "thinking", "reasoning")


class TemplateFailed(Exception):
    """A template cannot render a chat; the message says why, often in the template's own words."""


def main(channel_fd: int, parent_pid: int) -> None:
    """Answer the parent's requests until it hangs up."""
    channel = connect(channel_fd, parent_pid)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(EOFError, OSError):
        channel.send(encode(RendererStarted()))
        while True:
            channel.send(_answer(channel.receive().payload))


def _answer(payload: bytes) -> bytes:
    try:
        request = decode_request(payload)
        text = render(request.template, request.variables, request.continues)
        return encode(RenderedChat(text))
    except TemplateFailed as error:
        return encode(RenderRefused(str(error)[:_MOST_REASON_CHARACTERS]))
    except (MemoryError, RecursionError) as error:
        return encode(RenderRefused(f"it needs too much memory ({type(error).__name__})"))


def render(template: str, variables: Mapping[str, Any], continues: bool = False) -> str:
    """The chat as the model is to read it, with what Hugging Face's templates rely on. Raises
    TemplateFailed."""
    given = {**variables, "messages": [_with_reasoning(one) for one in variables["messages"]]}
    if continues:
        given["messages"] = _marked(given["messages"])
    try:
        text = _joined(_compiled(template), given)
    except TemplateSyntaxError as error:
        raise TemplateFailed(f"line {error.lineno}: {error.message}") from None
    except TemplateError as error:
        raise TemplateFailed(error.message or type(error).__name__) from None
    except TemplateFailed:
        raise
    except (MemoryError, RecursionError) as error:
        raise TemplateFailed(f"it needs too much memory ({type(error).__name__})") from None
    except Exception as error:  # noqa: BLE001 (a template can make Python raise anything)
        raise TemplateFailed(f"{type(error).__name__}: {error}") from None
    return _unmarked(text, given["messages"][-1]["content"]) if continues else text


def _joined(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    pieces, size = [], 0
    for piece in template.generate(**variables):
        size += len(piece)
        if size > MAX_CHARACTERS:
            raise TemplateFailed(f"it makes more than {MAX_CHARACTERS} characters")
        pieces.append(piece)
    return "".join(pieces)


@lru_cache(maxsize=32)
def _compiled(text: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    environment.globals["namespace"] = _Namespace
    environment.globals["dict"] = _Dict()
    return environment.from_string(text)


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what an assistant says; here it is just said."""

    tags = {"generation"}  # noqa: RUF012 (jinja's form)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Dict:
    """`dict(…)`, without the class and what hangs on it."""

    def __call__(self, *values: Any, **named: Any) -> dict[Any, Any]:
        return dict(*values, **named)

    def fromkeys(self, *values: Any) -> dict[Any, Any]:
        return dict.fromkeys(*values)


class _Namespace(Namespace):
    """`namespace(…)`, whose attributes never begin with an underscore."""

    def __init__(*values: Any, **named: Any) -> None:
        self, *rest = values
        attributes = dict(*rest, **named)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no attribute {name!r}; leave the underscore out")


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 (templates mean the local time)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own escapes what HTML needs escaped."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _with_reasoning(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message's reasoning under each of the names that templates look for."""
    said = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if said is None:
        return message
    return {"thinking": said, **message, "reasoning_content": said}


def _marked(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    last = messages[-1]
    return [*messages[:-1], {**last, "content": last.get("content", "") + _HERE}]


def _unmarked(text: str, content: str) -> str:
    """The text up to where the last message ends, without what the template puts behind it."""
    mark = _HERE.strip()
    said = content.removesuffix(_HERE).strip()
    with suppress(ValueError):
        at = text.rindex(mark)
        if said in text[:at]:
            return text[:at] if text.startswith(_HERE, at) else text[:at].rstrip()
    raise TemplateFailed("it changes the last message, which therefore cannot be continued")
