"""Promises of `schedulers.seam` that every scheduler keeps."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from schedulers.errors import Cancelled, Draining, QueueFull, ShutDown
from schedulers.reply import Reply
from support.scheduler_scene import KINDS, PATIENCE_S, WAITING, Scene

Act = Callable[[Scene], Awaitable[None]]
Play = Callable[[Act], None]


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a test on a loop with a scene of its own."""

    async def whole(act: Act) -> None:
        scene = Scene(request.param)
        async with asyncio.timeout(PATIENCE_S):
            try:
                await act(scene)
            finally:
                scene.instance.open()
                await scene.scheduler.close()
                if scene.behind is not None:
                    await scene.behind.close()

    return lambda act: asyncio.run(whole(act))


def now_ns() -> int:
    return time.monotonic_ns()


def in_time_ns() -> int:
    return now_ns() + PATIENCE_S * 1_000_000_000


# submit


def test_every_request_is_answered_under_its_own_id_and_its_reply_ends_once(play: Play) -> None:
    async def act(scene: Scene) -> None:
        ends: list[Reply] = []
        replies = await scene.fill()
        for reply in replies:
            reply.watch(ends.append)
        scene.instance.open()
        answers = [await reply.one() for reply in replies]
        await scene.scheduler.close()
        assert [answer.id for answer in answers] == ["r1", "r2", "r3"]
        assert all(answer.last for answer in answers)
        assert sorted(map(id, ends)) == sorted(map(id, replies))

    play(act)


def test_a_full_queue_refuses_and_the_caller_may_submit_the_request_later(play: Play) -> None:
    async def act(scene: Scene) -> None:
        replies = await scene.fill()
        refused = scene.request()
        with pytest.raises(QueueFull):
            scene.scheduler.submit(refused)
        assert scene.scheduler.inflight() == len(replies)
        scene.instance.open()
        for reply in replies:
            await reply.one()
        assert (await scene.scheduler.submit(refused).one()).id == refused.id

    play(act)


def test_a_request_nobody_waits_for_makes_room_in_a_full_queue(play: Play) -> None:
    async def act(scene: Scene) -> None:
        running, waiting, gone = await scene.fill()
        gone.cancel()
        last = scene.submit()
        scene.instance.open()
        answers = [await reply.one() for reply in (running, waiting, last)]
        assert [answer.id for answer in answers] == ["r1", "r2", "r4"]

    play(act)


def test_a_cancelled_reply_ends_at_once_and_the_others_are_answered(play: Play) -> None:
    async def act(scene: Scene) -> None:
        running, gone, waiting = await scene.fill()
        gone.cancel()
        assert gone.ended
        with pytest.raises(Cancelled):
            gone.result()
        scene.instance.open()
        answers = [await running.one(), await waiting.one()]
        assert [answer.id for answer in answers] == ["r1", "r3"]
        await scene.scheduler.drain(in_time_ns())
        assert scene.scheduler.inflight() == 0

    play(act)


def test_a_reply_cancelled_while_it_is_computed_ends_at_once_and_is_not_inflight_for_ever(
    play: Play,
) -> None:
    async def act(scene: Scene) -> None:
        running, *waiting = await scene.fill()
        running.cancel()
        with pytest.raises(Cancelled):
            running.result()
        scene.instance.open()
        for reply in waiting:
            await reply.one()
        await scene.scheduler.drain(in_time_ns())
        assert scene.scheduler.inflight() == 0

    play(act)


# inflight and hung


def test_inflight_counts_what_was_accepted_and_is_not_answered(play: Play) -> None:
    async def act(scene: Scene) -> None:
        assert scene.scheduler.inflight() == 0
        replies = await scene.fill()
        assert scene.scheduler.inflight() == 1 + WAITING
        scene.instance.open()
        for reply in replies:
            await reply.one()
        await scene.scheduler.drain(in_time_ns())
        assert scene.scheduler.inflight() == 0

    play(act)


def test_no_instance_counts_as_hung_that_has_no_limit_or_a_process_of_its_own(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.fill()
        assert scene.scheduler.hung() == 0

    play(act)


# drain


def test_a_scheduler_that_drains_refuses_new_requests_and_answers_the_others(play: Play) -> None:
    async def act(scene: Scene) -> None:
        replies = await scene.fill()
        draining = asyncio.create_task(scene.scheduler.drain(in_time_ns()))
        await asyncio.sleep(0)
        with pytest.raises(Draining, match=r"^m version 1 is being unloaded$"):
            scene.submit()
        assert not draining.done()
        assert scene.scheduler.inflight() == len(replies)
        scene.instance.open()
        await draining
        assert [reply.result().id for reply in replies] == ["r1", "r2", "r3"]

    play(act)


def test_an_idle_scheduler_has_drained_at_once(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.scheduler.drain(in_time_ns())
        with pytest.raises(Draining):
            scene.submit()

    play(act)


def test_a_drain_ends_at_its_deadline_and_close_fails_what_is_left_inside(play: Play) -> None:
    async def act(scene: Scene) -> None:
        replies = await scene.fill()
        await scene.scheduler.drain(now_ns() + 20_000_000)
        assert not any(reply.ended for reply in replies)
        await scene.scheduler.close()
        for reply in replies:
            with pytest.raises(ShutDown):
                await reply.one()

    play(act)


# close


def test_closing_closes_the_instance_and_may_be_repeated(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.instance.open()
        await scene.submit().one()
        await scene.scheduler.close()
        await scene.scheduler.close()
        assert scene.instance.closed
        with pytest.raises(Draining):
            scene.submit()

    play(act)
