"""What a script may say about the responses of its call."""

import asyncio

import pytest

from backends.process.call_messages import CallRequest
from backends.process.health.liveness import Activity
from backends.response_sender import WINDOW
from schedulers.errors import DeadlineExceeded
from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.bls.causes import CausingRequest
from server.bls.open_call import OpenCall

TURNS = 20
"""Of the loop, in which what can be sent was sent."""


def test_script_that_reads_more_responses_than_were_sent_gets_no_more_of_them() -> None:
    async def main() -> list[int]:
        request = CallRequest(1, "echo", -1, "", 0, 0, 0, "", (), True, (), (), b"")
        sent: list[bytes] = []
        reply, seen = Reply(), []
        call = OpenCall(request, (), lambda data, _: sent.append(data), lambda _: None, Activity())
        call.follow(reply, None)
        for _ in range(3 * WINDOW):
            reply.send(InferResponse("", "echo", 1, {}, last=False))
        for count in (0, -1, WINDOW + 1, 1 << 40, 4):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            seen.append(len(sent))
            if count == 4:
                call.read(count)
                continue
            with pytest.raises(ValueError, match="more responses read than were sent"):
                call.read(count)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        seen.append(len(sent))
        reply.close()
        call.cancel()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return seen

    assert asyncio.run(main()) == [WINDOW] * 5 + [WINDOW + 4]


def test_a_call_is_known_to_the_request_behind_it_until_it_is_answered() -> None:
    async def main() -> None:
        request = CallRequest(1, "echo", -1, "", 0, 0, 0, "", (), False, (), (), b"")
        reply, cause = Reply(), CausingRequest(None, "m")
        call = OpenCall(request, (cause,), lambda *_: None, lambda _: None, Activity())
        call.follow(reply, None)
        assert list(cause.context.root.script_calls) == [reply]
        reply.fail(DeadlineExceeded("late"))
        assert not cause.context.root.script_calls

    asyncio.run(main())
