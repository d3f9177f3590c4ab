"""The pump that writes down what gateways say of their loads: the latest of each, until it is."""

import asyncio

from control import loads
from control.deployments import pending_changes
from control.errors import DatabaseGone
from control.gateways.messages import LoadReport
from control.sql.database import Actor, Database

RETRY_S = 1.0
"""Between two tries to reach a database that does not answer."""


class LoadRecorder:
    """On the loop. What a gateway said before its latest word is forgotten, written or not."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._latest: dict[str, LoadReport] = {}
        self._news = asyncio.Event()

    def on_load_report(self, report: LoadReport) -> None:
        """A gateway has spoken."""
        self._latest[report.server] = report
        self._news.set()

    async def run(self) -> None:
        """Until cancelled. A database that is gone only makes it wait."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._latest:
                server, report = next(iter(self._latest.items()))
                try:
                    await asyncio.to_thread(self._write, report)
                except DatabaseGone:
                    await asyncio.sleep(RETRY_S)
                    continue
                if self._latest[server] is report:
                    del self._latest[server]

    def _write(self, report: LoadReport) -> None:
        rows = [
            (one.model, one.version, one.state, one.reason, one.health, one.loaded_at)
            for one in report.rows
        ]
        with self._database.change(Actor(f"server:{report.server}", "system")) as tx:
            loads.record(tx, report.server, rows)
            pending_changes.record(tx, report.server, report.pending)
