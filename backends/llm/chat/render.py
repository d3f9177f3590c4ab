"""A process that renders chat templates for the gateway: Jinja in its sandbox, and nothing else.

`python -m backends.llm.chat.render` answers length-prefixed JSON questions from stdin
(`backends.llm.chat.template.question`) on stdout, one after the other, and ends when stdin does.
Nothing here bounds the time: it is killed when a template runs too long; one that takes too much
memory fails by itself.
"""

import json
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, BinaryIO, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from backends.llm.chat.template import LENGTH

MEMORY_BYTES = 1 << 30
MAX_CHARACTERS = 1 << 24
"""Of a rendered chat."""
_HERE = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING = ("reasoning_content", "thinking", "reasoning")


class TemplateFailed(Exception):
    """A template cannot render a chat; the message says why, often in the template's own words."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed goes where errors go
    while (asked := _read(sys.stdin.buffer)) is not None:
        answer = _answer(asked)
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    asked = stream.read(length)
    return asked if len(asked) == length else None


def _answer(asked: bytes) -> bytes:
    """`+` and the text, or `-` and why there is none; to nothing, nothing: it has started."""
    if not asked:
        return b""
    try:
        question = json.loads(asked)
        text = render(question["template"], question["variables"], question["continues"])
        return b"+" + text.encode("utf-8", "replace")
    except TemplateFailed as error:
        return b"-" + str(error)[:2000].encode("utf-8", "replace")
    except (MemoryError, RecursionError) as error:
        return f"-it needs too much memory ({type(error).__name__})".encode()


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


if __name__ == "__main__":
    main()
