"""A language model's tokeniser as the gateway has it: an engine tokenises, a table knows the bytes.

Called by front ends and by `schedulers.llm.gateway.language_scheduler`, which connects it to its
engines.
"""

from collections.abc import Awaitable, Callable, Sequence

from backends.llm.chat.control_text import ControlText
from backends.llm.tokens.token_table import TokenTable
from schedulers.llm.engine_messages import (
    Decode,
    Encode,
    TokeniserReply,
    pack_tokens,
    unpack_tokens,
)
from schedulers.llm.errors import SenselessRequest

Tokens = tuple[tuple[int, ...], ...]
Ask = Callable[[Encode | Decode], Awaitable[TokeniserReply]]
"""Raises InstanceDied when no engine answers in time, and ShutDown."""


class EngineTokeniser:
    """Connected once, before anybody asks; on the loop's thread."""

    def __init__(self) -> None:
        self._ask: Ask | None = None
        self._table = TokenTable()
        self._last_id = 0
        self.control_text = ControlText()

    def connect(self, ask: Ask, table: TokenTable, control_text: ControlText) -> None:
        """From now on `ask` gives what an engine makes of a question."""
        self._ask = ask
        self._table = table
        self.control_text = control_text

    async def encode(
        self, texts: Sequence[str], *, special: bool = True, marked: bool = False
    ) -> Tokens:
        """Tokens of each text, as `Tokeniser.encode` makes them. Raises SenselessRequest,
        InstanceDied, ShutDown."""
        if not texts:
            return ()
        read = await self._answer(Encode(self._number(), tuple(texts), special, marked))
        return tuple(map(unpack_tokens, read.lists))

    async def decode(self, tokens: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of tokens; U+FFFD for bytes that are not UTF-8, or not yet. Raises
        SenselessRequest, InstanceDied, ShutDown."""
        packed = pack_tokens(tuple(tokens))
        return (await self._answer(Decode(self._number(), packed, skip_special))).text

    def bytes_of(self, token: int) -> bytes:
        """What a token adds to a text: bytes, which need not be whole characters."""
        return self._table.bytes_of(token)

    async def _answer(self, request: Encode | Decode) -> TokeniserReply:
        assert self._ask is not None, "a tokeniser was asked before its engines. This is a bug."
        read = await self._ask(request)
        if read.error:
            raise SenselessRequest(read.error)
        return read

    def _number(self) -> int:
        self._last_id += 1
        return self._last_id
