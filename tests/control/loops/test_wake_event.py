"""A pump rests until somebody rings, and no longer than it wants."""

import asyncio
import threading
from typing import Any

from control.loops.wake_event import WakeEvent


def test_a_rest_ends_when_the_bell_rings_also_when_it_rang_before() -> None:
    async def main() -> None:
        bell = WakeEvent()
        bell.ring()
        async with asyncio.timeout(60):
            await bell.rest(3_600)
            asyncio.get_running_loop().call_soon(bell.ring)
            await bell.rest(3_600)
            await bell.rest(0.01)  # nobody rings: it ends all the same

    asyncio.run(main())


def test_what_is_hushed_was_not_said() -> None:
    async def main() -> bool:
        bell = WakeEvent()
        bell.ring()
        bell.hush()
        resting = asyncio.create_task(bell.rest(3_600))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        resting.cancel()
        await asyncio.gather(resting, return_exceptions=True)
        return resting.cancelled()

    assert asyncio.run(main())


def test_a_commit_on_another_thread_while_the_first_rest_begins_ends_it() -> None:
    class Late(WakeEvent):
        """A thread that has found that nobody rests goes on when somebody does."""

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name == "_loop" and value is None and threading.current_thread() is committing:
                found.set()
                assert rests.wait(60)
            return value

    class Rung(asyncio.Event):
        def set(self) -> None:
            setters.append(threading.current_thread())
            super().set()

    async def main() -> None:
        committing.start()
        assert found.wait(60)
        async with asyncio.timeout(20):
            resting = asyncio.create_task(bell.rest(3_600))
            await asyncio.sleep(0)
            rests.set()
            await resting

    found, rests = threading.Event(), threading.Event()
    setters: list[threading.Thread] = []
    bell = Late()
    bell._rung = Rung()
    committing = threading.Thread(target=bell.committed)
    asyncio.run(main())
    committing.join(60)
    assert setters == [threading.current_thread()], "an event is set on its loop's thread alone"
