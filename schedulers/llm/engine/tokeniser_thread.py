"""Texts to tokens and back for the gateway, in the engine's process, beside its steps.

Comes from the reading thread of `schedulers.llm.engine.loop`; goes back as a `TokeniserReply`.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from backends.llm.tokens.tokeniser import Tokeniser
from schedulers.llm.engine_messages import (
    Decode,
    Encode,
    Message,
    TokeniserReply,
    pack_tokens,
    unpack_tokens,
)

BRIEF = 4096
"""Characters, or tokens, that are read on the spot, in some 0.3 ms; more of them on a thread."""
_TOKEN_BYTES = 4


class TokeniserThread:
    """`take` belongs to one thread. What is long waits for what is long, and for nothing else."""

    def __init__(self, tokeniser: Tokeniser, send: Callable[[Message], None]) -> None:
        self._tokeniser = tokeniser
        self._send = send
        self._long: SimpleQueue[Encode | Decode] | None = None

    def take(self, request: Encode | Decode) -> None:
        """Have it answered soon."""
        if _size(request) <= BRIEF:
            self._send(read(self._tokeniser, request))
            return
        if self._long is None:
            self._long = SimpleQueue()
            threading.Thread(target=self._work, args=(self._long,), daemon=True).start()
        self._long.put(request)

    def _work(self, long: "SimpleQueue[Encode | Decode]") -> None:
        while True:
            self._send(read(self._tokeniser, long.get()))


def read(tokeniser: Tokeniser, request: Encode | Decode) -> TokeniserReply:
    """The answer; one with an `error` where the tokeniser cannot."""
    try:
        if isinstance(request, Decode):
            tokens = unpack_tokens(request.tokens)
            text = tokeniser.decode(tokens, skip_special=request.skip_special)
            return TokeniserReply(request.id, (), text, "")
        wanted = {"special": request.special, "marked": request.marked}
        lists = tuple(pack_tokens(tokeniser.encode(one, **wanted)) for one in request.texts)
        return TokeniserReply(request.id, lists, "", "")
    except BaseException as error:  # noqa: BLE001 (a panic of the library is no Exception)
        return TokeniserReply(request.id, (), "", f"the text cannot be read: {error}")


def _size(request: Encode | Decode) -> int:
    if isinstance(request, Decode):
        return len(request.tokens) // _TOKEN_BYTES
    return sum(map(len, request.texts))
