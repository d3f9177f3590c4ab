"""Texts that engines are to read: answered, asked again when an engine dies, and ended with it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from backends.errors import InstanceDied
from schedulers.counters import TokenCounters
from schedulers.errors import ShutDown
from schedulers.llm.engine_messages import Encode, TokeniserReply
from schedulers.llm.gateway.engines import Engines
from support.schedulers import EngineWithoutProcess as Engine

ASKED = Encode(1, ("fox",), True)
ANSWER = TokeniserReply(1, (b"\1\0\0\0",), "", "")


def run(work: Callable[[Engines, Engine, "asyncio.Task[TokeniserReply]"], Awaitable[None]]) -> None:
    """`work` with one engine, which has been asked to read a text."""

    async def all_of_it() -> None:
        engine = Engine()
        none = [lambda *_: None] * 3
        engines = Engines(TokenCounters(), 60, *none)
        engines.resize([engine])
        reading = asyncio.ensure_future(engines.read(ASKED))
        await turns()
        assert engine.told == [ASKED]
        await work(engines, engine, reading)
        await engines.close()

    asyncio.run(all_of_it())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_text_is_answered() -> None:
    async def work(
        engines: Engines, engine: Engine, reading: "asyncio.Task[TokeniserReply]"
    ) -> None:
        engine.on_message(ANSWER)
        assert await reading == ANSWER

    run(work)


def test_a_text_whose_engine_dies_is_asked_again_of_the_next_one() -> None:
    async def work(
        engines: Engines, engine: Engine, reading: "asyncio.Task[TokeniserReply]"
    ) -> None:
        engine.die()
        await turns()
        assert engine.told == [ASKED]
        engine.revive()
        await turns()
        assert engine.told == [ASKED, ASKED]
        engine.on_message(ANSWER)
        assert await reading == ANSWER

    run(work)


def test_a_text_with_which_two_engines_die_is_given_up() -> None:
    async def work(
        engines: Engines, engine: Engine, reading: "asyncio.Task[TokeniserReply]"
    ) -> None:
        engine.die()
        engine.revive()
        await turns()
        engine.die()
        with pytest.raises(InstanceDied, match="died again while it read the text"):
            await reading

    run(work)


def test_a_text_under_way_ends_with_its_model_and_none_is_taken_in_after_it() -> None:
    async def work(
        engines: Engines, engine: Engine, reading: "asyncio.Task[TokeniserReply]"
    ) -> None:
        await engines.close()
        with pytest.raises(ShutDown, match="before the text could be read"):
            await reading
        with pytest.raises(ShutDown, match="before the text could be read"):
            await engines.read(ASKED)

    run(work)


def test_an_engine_that_leaves_answers_first() -> None:
    async def work(
        engines: Engines, engine: Engine, reading: "asyncio.Task[TokeniserReply]"
    ) -> None:
        engines.resize([Engine()])
        await turns()
        assert not engine.closed
        engine.on_message(ANSWER)
        assert await reading == ANSWER
        await engines.close()
        assert engine.closed

    run(work)


def test_a_text_that_nobody_waits_for_is_forgotten() -> None:
    async def work(
        engines: Engines, engine: Engine, reading: "asyncio.Task[TokeniserReply]"
    ) -> None:
        reading.cancel()
        await turns()
        assert reading.cancelled()
        engine.on_message(ANSWER)
        engine.die()
        engine.revive()
        await turns()
        assert engine.told == [ASKED]

    run(work)
