"""The slip carried back: responses, then exactly one end."""

import asyncio

import numpy as np
import pytest

from schedulers.errors import Cancelled, DeadlineExceeded
from schedulers.reply import NotOneResponse, Reply
from schedulers.request import InferResponse


def response(last: bool, value: int = 0) -> InferResponse:
    return InferResponse("", "m", 1, {"Y": np.array([value])}, last=last)


def test_one_returns_the_only_response_whenever_it_comes() -> None:
    async def test() -> None:
        reply = Reply()
        asyncio.get_running_loop().call_soon(reply.send, response(last=True, value=7))
        assert (await reply.one()).outputs["Y"][0] == 7

    asyncio.run(test())


def test_a_stream_yields_every_response_and_then_its_error() -> None:
    seen: list[int] = []

    async def test() -> None:
        reply = Reply()
        for value in range(3):
            reply.send(response(last=False, value=value))
        reply.fail(DeadlineExceeded("late"))
        async for one in reply:
            seen.append(int(one.outputs["Y"][0]))

    with pytest.raises(DeadlineExceeded):
        asyncio.run(test())
    assert seen == [0, 1, 2]


def test_a_closed_stream_ends() -> None:
    async def test() -> int:
        reply = Reply()
        reply.send(response(last=False))
        asyncio.get_running_loop().call_soon(reply.close)
        return sum([1 async for _ in reply])

    assert asyncio.run(test()) == 1


def test_a_unary_caller_is_told_of_none_and_of_several() -> None:
    none, several = Reply(), Reply()
    none.close()
    several.send(response(last=False))
    several.send(response(last=True))
    with pytest.raises(NotOneResponse, match="got 0"):
        none.result()
    with pytest.raises(NotOneResponse, match="got 2"):
        several.result()


def test_cancelling_the_waiting_task_cancels_the_request() -> None:
    async def test() -> None:
        reply = Reply()
        task = asyncio.create_task(reply.one())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reply.cancelled
        with pytest.raises(Cancelled):
            reply.result()

    asyncio.run(test())


def test_what_comes_after_the_end_is_ignored() -> None:
    reply = Reply()
    reply.send(response(last=True, value=1))
    reply.fail(DeadlineExceeded("too late to fail"))
    assert reply.result().outputs["Y"][0] == 1


def test_a_callback_is_called_once_when_the_reply_has_ended() -> None:
    reply, calls = Reply(), []
    reply.then(lambda reply: calls.append(reply.ended))
    reply.send(response(last=True))
    reply.close()
    assert calls == [True]
