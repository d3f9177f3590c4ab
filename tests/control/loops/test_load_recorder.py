"""What gateways say of their loads reaches the rows, also when the database comes back later."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from control import loads, servers
from control.gateways.messages import LoadReport, LoadRow
from control.loops.load_recorder import LoadRecorder
from control.sql.database import Database
from control.sql.migrate import migrate
from support.control import ADA, fresh_url
from support.severed import Way, severable
from support.yard_load import eventually


def _told(state: str) -> LoadReport:
    return LoadReport("one", 1, True, (LoadRow("m", 1, state, ""),), frozenset())


def _states(database: Database) -> list[str]:
    with database.reading() as session:
        return [one.state for one in loads.states(session)]


async def _eventually(true: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, true, "what was said is written", 30)


def test_what_was_said_in_an_outage_is_written_after_it(tmp_path: Path) -> None:
    async def through_an_outage(database: Database, way: Way) -> None:
        recorder = LoadRecorder(database)
        running = asyncio.create_task(recorder.run())
        recorder.on_load_report(_told("LOADING"))
        await _eventually(lambda: _states(database) == ["LOADING"])
        way.cut()
        recorder.on_load_report(_told("FAILED"))
        recorder.on_load_report(_told("READY"))
        way.mend()
        await _eventually(lambda: _states(database) == ["READY"])
        running.cancel()
        await asyncio.wait([running])

    with fresh_url("postgresql", tmp_path) as url, severable(url) as way:
        database = Database(way.url)
        migrate(database)
        with database.change(ADA) as tx:
            servers.register(tx, "one", "b1", "0.4", "http://127.0.0.1:8003")
        asyncio.run(through_an_outage(database, way))
        database.close()
