"""What one server commits wakes the others, which then look rarely."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from control.loops.desired_state_feed import DesiredStateFeed
from control.sql.channels import ServerChannels
from control.sql.database import COMMITTED, DESIRED, EVENT, Database
from control.sql.migrate import migrate
from support.control import ADA, fresh_url, terminate_connections

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with fresh_url("postgresql", tmp_path_factory.mktemp("none")) as made:
        database = Database(made)
        migrate(database)
        database.close()
        yield made


@pytest.fixture
def other(url: str) -> Iterator[Database]:
    opened = Database(url)
    yield opened
    opened.close()


@pytest.fixture
def shared(url: str) -> Iterator[Database]:
    opened = Database(url)
    yield opened
    opened.close()


def commit(database: Database, desire: bool = False, event: bool = True) -> None:
    with database.change(ADA) as tx:
        if event:
            tx.happened("something", "somewhere")
        if desire:
            tx.desire()


@asynccontextmanager
async def listening(
    database: Database, hear: Callable[[str], None]
) -> AsyncIterator[ServerChannels]:
    channels = ServerChannels(database, {COMMITTED: hear})
    task = asyncio.create_task(channels.run())
    try:
        async with asyncio.timeout(20):
            while not channels.idle_s(0.0):  # noqa: ASYNC110 - it connects
                await asyncio.sleep(0.01)
        yield channels
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_each_commit_with_an_event_is_heard_by_the_other_server(
    shared: Database, other: Database
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with listening(shared, heard.put_nowait):
        for desire, event in ((False, True), (False, False), (True, True)):
            await asyncio.to_thread(commit, other, desire, event)
        async with asyncio.timeout(20):
            said = [await heard.get() for _ in range(3)]
    assert said == ["", EVENT, DESIRED]


async def test_a_change_that_is_not_committed_is_not_said(
    shared: Database, other: Database
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with listening(shared, heard.put_nowait):
        with suppress(RuntimeError), other.change(ADA) as tx:
            tx.happened("something", "somewhere")
            tx.finish()
            raise RuntimeError("stop")
        await asyncio.to_thread(commit, other, True)
        async with asyncio.timeout(20):
            said = [await heard.get() for _ in range(2)]
    assert said == ["", DESIRED]


async def test_a_lost_connection_is_told_until_there_is_another(shared: Database) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with listening(shared, heard.put_nowait) as channels, asyncio.timeout(30):
        assert await heard.get() == ""
        await asyncio.to_thread(terminate_connections, shared)
        while channels.idle_s(0.0):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await heard.get() == "", "who missed something looks"
        assert channels.idle_s(0.0)


async def test_what_another_server_desires_is_followed_without_polling(
    shared: Database, other: Database
) -> None:
    revisions: asyncio.Queue[int] = asyncio.Queue()
    feed = DesiredStateFeed(shared, lambda _: 600.0)
    feed.follow(lambda desired: revisions.put_nowait(desired.revision))
    async with listening(shared, lambda _: feed.wake()), asyncio.timeout(30):
        task = asyncio.create_task(feed.run())
        before = await revisions.get()
        await asyncio.to_thread(commit, other, True)
        assert await revisions.get() == before + 1
        task.cancel()
