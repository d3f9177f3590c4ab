"""A process that renders chat templates for the gateway, and nothing else.

`python -m backends.llm.chat_process` answers length-prefixed JSON questions from stdin
(`backends.llm.chat.question`) on stdout, one after the other, and ends when stdin does. It is
killed when a template runs too long; one that takes too much memory fails by itself.
"""

import json
import os
import resource
import sys
from typing import BinaryIO

from backends.llm.chat import LENGTH
from backends.llm.chat_render import TemplateFailed, render

MEMORY_BYTES = 1 << 30


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


if __name__ == "__main__":
    main()
