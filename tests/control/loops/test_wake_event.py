"""A pump rests until somebody rings, and no longer than it wants."""

import asyncio

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
