"""Ask python models whether they are ready, by their own `is_ready`; Triton's deadline."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

from backends.process.instance import HostedInstance
from backends.seam import Instance

DEADLINE_S = 5.0
"""A model that has not answered by then is not ready; Triton's figure."""


async def say_ready(instances: Sequence[Instance]) -> bool:
    """Whether every live instance that has an `is_ready` says so; never waits for an execution."""
    asked = [
        answer
        for one in instances
        if isinstance(one, HostedInstance) and one.ready and (answer := one.ask_ready())
    ]
    return not asked or await _all(asked)


async def _all(asked: "list[Future[bool]]") -> bool:
    try:
        async with asyncio.timeout(DEADLINE_S):
            return all(await asyncio.gather(*map(asyncio.wrap_future, asked)))
    except TimeoutError:
        return False
