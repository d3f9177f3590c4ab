"""Ports that servers share when both say so."""

import asyncio
from contextlib import closing

import pytest

from server.listen_address import ListenAddress, open_place


def test_a_port_is_shared_by_those_that_say_so_and_by_nobody_else() -> None:
    asyncio.run(_three_at_one_port())


async def _three_at_one_port() -> None:
    place = ListenAddress("127.0.0.1", 0, reuse_port=True)
    with closing(await open_place(place, asyncio.Protocol)) as first:
        same = place._replace(port=first.port)
        with closing(await open_place(same, asyncio.Protocol)) as second:
            assert second.port == first.port
            with pytest.raises(OSError, match="in use"):
                await open_place(same._replace(reuse_port=False), asyncio.Protocol)
