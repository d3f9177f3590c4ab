"""A query is answered by all servers of the database; the answer says which did not, and why."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from control import servers
from control.clock import utc_now
from control.gateways import peers
from control.gateways.link import GatewayUnreachable
from control.gateways.peers import NO_ANSWER, PeerGateways, channel_of
from control.gateways.queries import AnsweredRequest, AnsweredRequests, RequestsQuery
from control.sql.channels import ServerChannels
from control.sql.database import SYSTEM, Database
from control.sql.migrate import migrate
from control.tables import Server
from support.control import ADA, fresh_url, terminate_connections

pytestmark = pytest.mark.anyio

Ask = Callable[[RequestsQuery], Awaitable[AnsweredRequests]]
QUERY = RequestsQuery(limit=10)


@pytest.fixture(scope="module")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with fresh_url("postgresql", tmp_path_factory.mktemp("none")) as url:
        database = Database(url)
        migrate(database)
        database.close()
        yield url


@pytest.fixture
def shared(shared_url: str) -> Iterator[Database]:
    opened = Database(shared_url)
    with opened.change(ADA) as tx:
        for server in servers.list_servers(tx.session, utc_now()):
            tx.session.delete(tx.session.get(Server, server.id))
        tx.happened("test", "test")
    yield opened
    opened.close()


def kept(text: str) -> AnsweredRequests:
    row = AnsweredRequest(text, "", 1.7e9, "m", 1, "", 0, 0.0, 0.0, "ok", "")
    return AnsweredRequests((row,), 1, 5)


def gateway(text: str) -> Ask:
    async def ask(_: RequestsQuery) -> AnsweredRequests:
        return kept(text)

    return ask


async def gone(_: RequestsQuery) -> AnsweredRequests:
    raise GatewayUnreachable("the gateway is not connected")


@asynccontextmanager
async def server(database: Database, name: str, own: Ask) -> AsyncIterator[PeerGateways]:
    """A control process's part in it, listening."""
    boot = f"boot-{name}"
    with database.change(SYSTEM) as tx:
        servers.register(tx, name, boot, "1", "")
    made, listening = PeerGateways(database, name, boot, own), asyncio.Event()

    def hear(payload: str) -> None:
        listening.set()
        made.receive(payload)

    task = asyncio.create_task(ServerChannels(database, {channel_of(boot): hear}).run())
    try:
        async with asyncio.timeout(20):
            await listening.wait()
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await made.close()


async def test_every_server_answers(shared: Database) -> None:
    async with (
        server(shared, "s1", gateway("one")) as first,
        server(shared, "s2", gateway("two")),
        server(shared, "s3", gateway("three")),
    ):
        found = await first.ask(QUERY)
    assert found.answers == {"s1": kept("one"), "s2": kept("two"), "s3": kept("three")}
    assert found.silent == {}


async def test_a_server_whose_gateway_is_away_is_named_with_its_reason(shared: Database) -> None:
    async with (
        server(shared, "s1", gone) as first,
        server(shared, "s2", gateway("two")) as second,
    ):
        for asker in (first, second):
            found = await asker.ask(QUERY)
            assert found.answers == {"s2": kept("two")}
            assert found.silent == {"s1": "the gateway is not connected"}


async def test_a_server_that_does_not_answer_is_named_after_the_deadline(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ANSWER_S", 0.5)
    with shared.change(SYSTEM) as tx:
        servers.register(tx, "s2", "boot-s2", "1", "")
    async with server(shared, "s1", gateway("one")) as first:
        found = await first.ask(QUERY)
    assert found.answers == {"s1": kept("one")}
    assert found.silent == {"s2": NO_ANSWER}


async def test_a_server_without_heartbeats_is_named_and_not_waited_for(shared: Database) -> None:
    with shared.change(SYSTEM) as tx:
        servers.register(tx, "s2", "boot-s2", "1", "")
        long_ago = tx.now - timedelta(seconds=servers.ALIVE_S + 1)
        tx.session.execute(update(Server).where(Server.id == "s2").values(seen_at=long_ago))
    async with server(shared, "s1", gateway("one")) as first:
        found = await first.ask(QUERY)
    assert found.answers == {"s1": kept("one")}
    assert found.silent["s2"].startswith("its last heartbeat was at ")


async def test_a_predecessor_with_the_same_id_does_not_answer(shared: Database) -> None:
    async with (
        server(shared, "s2", gateway("before")) as before,
        server(shared, "s1", gateway("one")) as first,
    ):
        assert before is not None
        with shared.change(SYSTEM) as tx:
            servers.register(tx, "s2", "boot-anew", "1", "")
        anew = PeerGateways(shared, "s2", "boot-anew", gateway("anew"))
        channels = ServerChannels(shared, {channel_of("boot-anew"): anew.receive})
        task = asyncio.create_task(channels.run())
        try:
            async with asyncio.timeout(20):
                while (found := await first.ask(QUERY)).silent:
                    pass  # it begins to listen
        finally:
            task.cancel()
    assert found.answers == {"s1": kept("one"), "s2": kept("anew")}


async def test_servers_are_heard_again_after_the_database_was_stopped(shared: Database) -> None:
    async with (
        server(shared, "s1", gateway("one")) as first,
        server(shared, "s2", gateway("two")),
    ):
        await asyncio.to_thread(terminate_connections, shared)
        async with asyncio.timeout(60):
            while (found := await first.ask(QUERY)).silent:
                assert found.answers == {"s1": kept("one")}
    assert found.answers == {"s1": kept("one"), "s2": kept("two")}


async def test_a_server_on_sqlite_asks_only_its_own_gateway(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/none.db")
    try:
        alone = PeerGateways(database, "s1", "boot-s1", gateway("one"))
        assert (await alone.ask(QUERY)).answers == {"s1": kept("one")}
        with pytest.raises(GatewayUnreachable, match="s1: the gateway is not connected"):
            await PeerGateways(database, "s1", "boot-s1", gone).ask(QUERY)
        await ServerChannels(database, {}).run()
    finally:
        database.close()
    assert not (tmp_path / "none.db").exists()
