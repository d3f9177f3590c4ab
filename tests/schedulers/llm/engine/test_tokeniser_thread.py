"""Texts are read by an engine's tokeniser beside its steps, and asked for by the gateway."""

import asyncio
from queue import SimpleQueue

import pytest

from backends.llm.chat.control_text import ControlText
from schedulers.llm.engine.tokeniser_thread import BRIEF, TokeniserThread, read
from schedulers.llm.engine_messages import (
    Decode,
    Encode,
    Message,
    TokeniserReply,
    pack_tokens,
    unpack_tokens,
)
from schedulers.llm.errors import SenselessRequest
from schedulers.llm.gateway.engine_tokeniser import EngineTokeniser
from support.llm import byte_tokeniser


def test_a_short_text_is_read_at_once_and_a_long_one_on_a_thread() -> None:
    said: SimpleQueue[Message] = SimpleQueue()
    reading = TokeniserThread(byte_tokeniser(), said.put)
    reading.take(Encode(1, ("fox", "ox"), True))
    first = said.get_nowait()
    assert isinstance(first, TokeniserReply)
    tokens = [tuple(byte_tokeniser().encode(text)) for text in ("fox", "ox")]
    assert [*map(unpack_tokens, first.lists)] == tokens
    reading.take(Encode(2, ("a" * BRIEF, "b"), True))
    second = said.get(timeout=60)
    assert isinstance(second, TokeniserReply)
    assert (second.id, [len(one) // 4 for one in second.lists]) == (2, [BRIEF, 1])


def test_what_cannot_be_read_is_told_and_nothing_else_is_disturbed() -> None:
    told = read(byte_tokeniser(), Encode(3, ("fox", "\udcff"), True))
    assert (told.id, told.lists) == (3, ())
    assert told.error.startswith("the text cannot be read: ")


def test_the_gateway_hears_what_the_tokeniser_says() -> None:
    tokeniser, remote = byte_tokeniser(), EngineTokeniser()

    async def ask(asked: Encode | Decode) -> TokeniserReply:
        return read(tokeniser, asked)

    async def asked() -> None:
        remote.connect(ask, tokeniser.table(8), ControlText())
        (tokens,) = await remote.encode(["thefox"])
        assert tokens == tuple(tokeniser.encode("thefox"))
        assert await remote.decode(tokens) == "thefox"
        assert b"".join(map(remote.bytes_of, tokens)) == b"thefox"
        assert await remote.encode([]) == ()
        with pytest.raises(SenselessRequest, match="cannot be read"):
            await remote.encode(["\udcff"])

    asyncio.run(asked())


def test_a_decoded_text_can_leave_special_tokens_out() -> None:
    told = read(byte_tokeniser(), Decode(4, pack_tokens(byte_tokeniser().encode("ox")), True))
    assert told == TokeniserReply(4, (), "ox", "")
