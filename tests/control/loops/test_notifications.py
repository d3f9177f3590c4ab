"""The pump of notifications: what it sends, when a receiver comes back, and beside another pump."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from control import loads, servers
from control.loops.deployer import LEASE
from control.loops.notifications import NotificationPump
from control.notifications import policy
from control.notifications.sender import WebhookSender
from control.problems.service import acknowledge, list_problems
from control.sql import leases
from control.sql.database import SYSTEM, Database
from support.control import ADA
from support.notifications import deliveries, hook, webhook
from support.webhook_receiver import Reply, receiver

PATIENCE_S = 60.0


def broken(database: Database, model: str) -> None:
    with database.change(SYSTEM) as tx:
        facts = {"server": "s1", "version": 1, "state": "FAILED", "reason": "it is broken"}
        tx.happened("load.changed", f"model:{model}", **facts)


def delivered(database: Database, count: int) -> Callable[[], bool]:
    return lambda: sum(row.state == "delivered" for row in deliveries(database)) == count


def run_until(
    done: Callable[[], bool],
    database: Database,
    allowed: list[str],
    *boots: str,
    during: Callable[[], None] = lambda: None,
) -> None:
    """Run a pump for each of `boots`, as so many servers do."""

    def wait() -> None:
        until = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until, [vars(row) for row in deliveries(database)]
            time.sleep(0.01)

    async def run() -> None:
        pumps = [
            NotificationPump(
                database, boot, WebhookSender(allowed), lambda: "https://models.example.com"
            )
            for boot in boots
        ]
        for pump in pumps:
            database.on_commit(pump.committed)
        jobs = [asyncio.create_task(pump.run()) for pump in pumps]
        try:
            await asyncio.to_thread(during)
            await asyncio.to_thread(wait)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    asyncio.run(run())


def test_what_happens_while_it_runs_is_delivered_signed_and_once(database: Database) -> None:
    with receiver() as there:
        webhook(database, url=there.url, allowed=[there.prefix])
        done, happen = delivered(database, 1), lambda: broken(database, "digits")
        run_until(done, database, [there.prefix], "boot", during=happen)
    (message,) = there.messages
    (row,) = deliveries(database)
    assert message.id == row.id == message.json["id"]
    assert message.json["data"]["url"] == "https://models.example.com/models/digits"
    assert row.attempts == 1
    assert hook(database).last_status == 200


def test_a_receiver_that_comes_back_gets_what_waited(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "FIRST_PAUSE_S", 0.01)
    with receiver() as there:
        there.answers.extend([Reply(503), Reply(500)])
        webhook(sqlite, url=there.url, allowed=[there.prefix])
        broken(sqlite, "digits")
        run_until(delivered(sqlite, 1), sqlite, [there.prefix], "boot")
    assert [message.id for message in there.messages] == [deliveries(sqlite)[0].id] * 3
    assert deliveries(sqlite)[0].attempts == 3


def test_of_several_servers_one_sends(database: Database) -> None:
    with receiver() as there:
        webhook(database, url=there.url, allowed=[there.prefix], window_s=0)
        for number in range(10):
            broken(database, f"m{number}")
        run_until(delivered(database, 10), database, [there.prefix], "one", "two", "three")
    assert len({message.id for message in there.messages}) == len(there.messages) == 10


def test_a_server_without_the_lease_sends_nothing_until_it_has_it(sqlite: Database) -> None:
    with receiver() as there:
        webhook(sqlite, url=there.url, allowed=[there.prefix])
        assert leases.take(sqlite, LEASE, "another", 3600)
        broken(sqlite, "digits")

        def free_it() -> None:
            assert there.messages == []
            leases.release(sqlite, LEASE, "another")

        run_until(lambda: len(there.messages) == 1, sqlite, [there.prefix], "boot", during=free_it)
    assert len(deliveries(sqlite)) == 1


def test_a_problem_that_is_acknowledged_is_not_told_and_the_next_one_is(sqlite: Database) -> None:
    with receiver() as there:
        webhook(sqlite, url=there.url, allowed=[there.prefix])
        with sqlite.change(SYSTEM) as tx:
            servers.register(tx, "srv", "boot", "0.1", "http://127.0.0.1:1")
            loads.record(tx, "srv", [("known", 1, "FAILED", "no such file")])
        with sqlite.change(ADA) as tx:
            (problem,) = list_problems(tx.session, tx.now)
            acknowledge(tx, problem, "Otto looks at it")
        broken(sqlite, "another")
        run_until(delivered(sqlite, 1), sqlite, [there.prefix], "boot")
    assert [row.models for row in deliveries(sqlite)] == [["another"]]


def test_a_slow_receiver_holds_up_no_other(sqlite: Database) -> None:
    hold = threading.Event()
    with receiver() as slow, receiver() as quick:
        slow.answers.append(Reply(hold=hold))
        allowed = [slow.prefix, quick.prefix]
        webhook(sqlite, "slow", url=slow.url, allowed=allowed)
        webhook(sqlite, "quick", url=quick.url, allowed=allowed)
        broken(sqlite, "digits")
        is_there = delivered(sqlite, 1)
        run_until(is_there, sqlite, allowed, "boot")
        assert [row.webhook for row in deliveries(sqlite) if row.finished_at] == ["quick"]
        hold.set()
